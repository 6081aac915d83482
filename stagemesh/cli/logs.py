"""What the processes of a mesh write: followed while they load, and quoted when they die."""

import json
from pathlib import Path
from typing import Final

__all__ = ["LogFile", "loading_detail"]

_QUOTED_LINES: Final = 12
_QUOTED_BYTES: Final = 8192
_READ_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 16 << 20


def loading_detail(line: bytes) -> str | None:
    """Take what a worker says of its progress from a line of its log."""
    if b'"loading"' not in line:
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("event") != "loading":
        return None
    return str(record.get("detail", ""))


class LogFile:
    """One process's log, over its lives; what came before the present life is not read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = 0
        self._read = 0

    def begin(self) -> None:
        """Mark where a new life starts; a log that has grown large is set aside first."""
        self.path.touch()
        if self.path.stat().st_size > _KEPT_BYTES:
            self.path.replace(self.path.with_suffix(".log.1"))
            self.path.touch()
        self._begin = self._read = self.path.stat().st_size

    def progress(self) -> str | None:
        """Read on; give the latest progress in what is new, if there is any."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read(_READ_BYTES)
        whole, newline, _ = data.rpartition(b"\n")
        if newline:
            self._read += len(whole) + 1
        elif len(data) == _READ_BYTES:
            self._read += len(data)  # No line of ours is so long.
        details = [loading_detail(line) for line in whole.split(b"\n")]
        return next((detail for detail in reversed(details) if detail is not None), None)

    def last_lines(self) -> list[str]:
        """Quote the end of the present life, a dozen lines at most."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self._begin, size - _QUOTED_BYTES))
            text = file.read(_QUOTED_BYTES).decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()][-_QUOTED_LINES:]
