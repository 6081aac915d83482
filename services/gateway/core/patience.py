"""Whether a client takes anything of what waits for it."""

__all__ = ["Patience"]


class Patience:
    """Looks at one client now and then; time is an argument."""

    def __init__(self, slow_s: float, *, taken: int, now_s: float) -> None:
        self._slow_s = slow_s
        self._taken = taken
        self._since_s = now_s

    def is_over(self, *, taken: int, waiting: int, now_s: float) -> bool:
        """Tell whether something has waited for `slow_s`, of which nothing was taken meanwhile.

        `taken` is how much the client has taken since it came, `waiting` how much it could take.
        """
        if taken != self._taken or not waiting:
            self._taken = taken
            self._since_s = now_s
        return now_s - self._since_s >= self._slow_s
