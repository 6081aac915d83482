"""The retry budget of a pool: what keeps one loss from becoming a storm of re-drives."""

__all__ = ["RetryBudget"]


class RetryBudget:
    """A bucket of tokens, one for each re-drive.

    Every submission that is no re-drive adds a share of a token, and time adds the whole burst
    every `refill_s`, so that whoever waits in a quiet pool gets on. The burst is never less than
    the engine slots of the largest replica seen: losing one whole replica is no storm.
    """

    __slots__ = ("_burst", "_filled_s", "_refill_s", "_share", "_tokens")

    def __init__(self, *, share: float, burst: float, refill_s: float) -> None:
        self._share = share
        self._burst = self._tokens = burst
        self._refill_s = refill_s
        self._filled_s = 0.0

    def know_replica(self, slots: int) -> None:
        """Take note of a replica's size."""
        if slots > self._burst:
            self._tokens += slots - self._burst
            self._burst = slots

    def earn(self) -> None:
        """Count a submission that is no re-drive."""
        self._tokens = min(self._burst, self._tokens + self._share)

    def take(self, now_s: float) -> float | None:
        """Take a token for a re-drive; give the seconds until it is there.

        None if that would be longer than `refill_s`; then nothing is taken.
        """
        rate = self._burst / self._refill_s
        self._tokens = min(self._burst, self._tokens + (now_s - self._filled_s) * rate)
        self._filled_s = now_s
        wait_s = max(0.0, (1.0 - self._tokens) / rate)
        if wait_s > self._refill_s:
            return None
        self._tokens -= 1.0
        return wait_s
