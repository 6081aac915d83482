"""Signs of life: when to give one, and when to give the peer up."""

__all__ = ["Liveness"]


class Liveness:
    """What one end of a link knows of time, in seconds on any steady clock.

    Whoever acts on the link calls `stood_still` first, and at least every `heartbeat_s`.
    """

    __slots__ = ("_heard_s", "_heartbeat_s", "_looked_s", "_peer_lost_s", "_sent_s")

    def __init__(self, *, heartbeat_s: float, peer_lost_s: float, now_s: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._peer_lost_s = peer_lost_s
        self._heard_s = self._sent_s = self._looked_s = now_s

    def heard(self, now_s: float) -> None:
        """Note that something came."""
        self._heard_s = now_s

    def sent(self, now_s: float) -> None:
        """Note that something was sent."""
        self._sent_s = now_s

    def heartbeat_due(self, now_s: float) -> bool:
        """Whether nothing was sent for `heartbeat_s`."""
        return now_s - self._sent_s >= self._heartbeat_s

    def lost(self, now_s: float) -> bool:
        """Whether nothing was heard for `peer_lost_s` of listening."""
        return now_s - self._heard_s >= self._peer_lost_s

    def stood_still(self, now_s: float) -> bool:
        """Look at the clock: whether this process stood still longer than `peer_lost_s`.

        Then the peer has given this end up, and nothing may be sent any more. After a shorter pause
        the peer's silence is forgiven for as long: what it said still waits to be read.
        """
        gap_s = now_s - self._looked_s
        self._looked_s = now_s
        if gap_s > self._heartbeat_s:
            self._heard_s = min(now_s, self._heard_s + gap_s - self._heartbeat_s)
        return gap_s > self._peer_lost_s

    def next_check_s(self, now_s: float) -> float:
        """When to look again: at the next heartbeat, or when the peer would be lost."""
        heartbeat_s = self._sent_s + self._heartbeat_s
        if heartbeat_s <= now_s:
            heartbeat_s = now_s + self._heartbeat_s
        return min(heartbeat_s, max(now_s, self._heard_s + self._peer_lost_s))
