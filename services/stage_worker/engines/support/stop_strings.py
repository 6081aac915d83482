"""Stop strings: where an answer ends before its engine would end it."""

from collections.abc import Sequence

__all__ = ["StopFinder"]


class StopFinder:
    """Finds the first stop string in growing text, and holds back what may begin one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.match = ""

    def push(self, text: str) -> str:
        """Take more text; give what is certain. Once `match` is set, nothing more comes."""
        if not self._stops:
            return text
        if self.match:
            return ""
        text = self._held + text
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.match = min(found)
            self._held = ""
            return text[:at]
        keep = self._prefix_length(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Give what was held back, since nothing follows it."""
        held, self._held = self._held, ""
        return held

    def _prefix_length(self, text: str) -> int:
        longest = max(map(len, self._stops)) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0
