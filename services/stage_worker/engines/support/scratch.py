"""A folder of its own for what a library leaves behind in the temporary folder.

A killed process cannot tidy up, so the next one does: each folder is locked by its owner, and one
whose lock is free has none any more.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from services.stage_worker.engines.support.store import locked

__all__ = ["Scratch", "environment"]

_LOCK = ".lock"


class Scratch:
    """A new folder; removed by `close`, or by the next `Scratch` of that name once we are dead."""

    def __init__(self, name: str) -> None:
        root = Path(tempfile.gettempdir()) / f"stagemesh-{name}-{os.getuid()}"
        root.mkdir(mode=0o700, exist_ok=True)
        if root.stat().st_uid != os.getuid():
            raise PermissionError(f"{root} belongs to somebody else")
        with locked(root):
            _sweep(root)
            self.path = Path(tempfile.mkdtemp(prefix="", dir=root))
            self._lock = (self.path / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for as long as it starts children; then put them back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _sweep(root: Path) -> None:
    """Remove the folders of dead owners; the caller holds the lock of the root."""
    for file in root.glob(f"*/{_LOCK}"):
        with file.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(file.parent, ignore_errors=True)
