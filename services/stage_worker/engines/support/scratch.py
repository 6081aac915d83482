"""A folder of its own for what a library leaves behind in the temporary folder.

A killed process cannot tidy up, so the next one does: each folder is locked by its owner, and one
whose lock is free has none any more. The same holds for shared memory that is noted in the folder.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from services.stage_worker.engines.support.children import family
from services.stage_worker.engines.support.store import locked

__all__ = ["Scratch", "environment"]

SHARED_MEMORY: Final = Path("/dev/shm")

_LOCK: Final = ".lock"
_NOTE: Final = ".shared-memory.json"
_OF_MULTIPROCESSING: Final = ("psm_", "sem.mp-")


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

    def note_shared_memory(self) -> None:
        """Note what this process and those below it share by Python's multiprocessing.

        Python's resource tracker removes it once they are dead, unless it was killed with them.
        """
        inodes = {inode for pid in family(os.getpid()) for inode in _shared_inodes_of(pid)}
        held = {
            file.name: file.stat().st_ino
            for prefix in _OF_MULTIPROCESSING
            for file in SHARED_MEMORY.glob(f"{prefix}*")
            if file.stat().st_ino in inodes
        }
        (self.path / _NOTE).write_text(json.dumps(held))

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
            _free_shared_memory(file.parent / _NOTE)
            shutil.rmtree(file.parent, ignore_errors=True)


def _shared_inodes_of(pid: int) -> Iterator[int]:
    """Yield the inodes of the shared memory that a process has mapped.

    The name that it was mapped by says little: the C library renames a semaphore that it has made.
    """
    with suppress(OSError):  # It has ended, or this is no Linux.
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if f" {SHARED_MEMORY}/" in line:
                yield int(line.split()[4])


def _free_shared_memory(note: Path) -> None:
    """Unlink what a dead owner's processes held, if it is still the same."""
    with suppress(OSError, ValueError):
        for name, inode in json.loads(note.read_text()).items():
            file = SHARED_MEMORY / name
            if file.exists() and file.stat().st_ino == inode:
                file.unlink()
