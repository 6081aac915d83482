"""The names of a store's files, and the end of those that a crashed predecessor left.

A store owns every file of one prefix. Its probe file holds a random token and is locked for as long
as the process lives, so that others can tell a living store from a dead one without asking anybody.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote
from weakref import WeakSet

__all__ = [
    "PAYLOAD_DIRECTORY",
    "ProbeFile",
    "data_path",
    "file_path",
    "matches_probe",
    "open_named",
    "remove_dead",
    "store_prefix",
]

PAYLOAD_DIRECTORY: Final = Path("/dev/shm")
"""Where a process holds payloads unless it is told."""

_TOKEN_BYTES: Final = 16
_NAME: Final = re.compile(r"((stagemesh-.+)-[0-9a-f]{16})-(probe|h_[0-9a-f]{32})")
_HANDLE_ID: Final = re.compile(r"h_[0-9a-f]{32}")


class ProbeFile:
    """The probe file of a living store; `probe` is what its handles say of it."""

    def __init__(self, directory: Path, prefix: str) -> None:
        """Create it.

        Raises:
            OSError: If it is there already, or the directory cannot be written.
        """
        self.path = directory / f"{prefix}-probe"
        token = os.urandom(_TOKEN_BYTES)
        self._fd = _create_locked(self.path)
        os.write(self._fd, token)
        self.probe = f"{self.path}#{token.hex()}"
        _probe_files.add(self)

    def close(self) -> None:
        """Remove it and let go of the lock. Safe to call twice."""
        if self._fd >= 0:
            self.path.unlink(missing_ok=True)
            self.let_go()

    def let_go(self) -> None:
        """Close the lock's descriptor alone, as a forked child must."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_probe_files: Final[WeakSet[ProbeFile]] = WeakSet()


def _let_go_in_child() -> None:
    # A lock lasts as long as any copy of its descriptor: a child that outlives a killed worker
    # would keep the worker's files alive.
    for probe_file in _probe_files:
        probe_file.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)


def store_prefix(holder_id: str, incarnation: int) -> str:
    """Give the name that all files of one start of one holder begin with."""
    return f"stagemesh-{quote(holder_id, safe='')}-{incarnation:016x}"


def file_path(directory: Path, prefix: str, handle_id: str) -> Path:
    """Tell where a store keeps the bytes of one of its handles."""
    return directory / f"{prefix}-{handle_id}"


def data_path(probe: str, handle_id: str) -> Path | None:
    """Tell where the bytes of a handle lie, by its probe; None where either is malformed."""
    path = Path(probe.partition("#")[0])
    match = _NAME.fullmatch(path.name)
    if match is None or match[3] != "probe" or not _HANDLE_ID.fullmatch(handle_id):
        return None
    return file_path(path.parent, match[1], handle_id)


def open_named(path: Path) -> int:
    """Open a file to read, and make sure that it had this name while it was open.

    A store gives a released file another name and asks who has it open before it writes it again.
    So nothing changes under a descriptor that was open while the name was there, nor under a
    mapping of it; one that was opened too late is closed, and what it shows is never seen.

    Raises:
        OSError: If there is no such file, or not any more.
    """
    # Nobody waits here for a store that was stopped in the middle of its question.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not os.path.samestat(os.fstat(fd), path.lstat()):
            raise FileNotFoundError(path)
    except OSError:
        os.close(fd)
        raise
    return fd


def matches_probe(probe: str) -> bool:
    """Tell whether this process sees the file system of the store that wrote the probe."""
    path, _, token = probe.rpartition("#")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return os.read(fd, _TOKEN_BYTES + 1).hex() == token
    except OSError:
        return False
    finally:
        os.close(fd)


def remove_dead(directory: Path, holder_id: str) -> int:
    """Remove the files of every dead store of this holder; return how many there were."""
    holder = f"stagemesh-{quote(holder_id, safe='')}"
    prefixes: dict[str, list[Path]] = {}
    for path in directory.glob(f"{_glob_safe(holder)}-*"):
        match = _NAME.fullmatch(path.name)
        if match and match[2] == holder:
            prefixes.setdefault(match[1], []).append(path)
    removed = 0
    for prefix, paths in prefixes.items():
        with _kept_dead(directory / f"{prefix}-probe") as dead:
            if dead:
                for path in paths:
                    path.unlink(missing_ok=True)
                removed += len(paths)
    return removed


def _glob_safe(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _create_locked(path: Path) -> int:
    """Create a file that is locked from its first moment on, for all that others can tell.

    Whoever removes the dead may find it before it is locked. That one holds a lock while it
    removes, so once ours is granted the file has either been spared or is gone, and is made again.
    """
    while True:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)


@contextmanager
def _kept_dead(probe_path: Path) -> Iterator[bool]:
    """Tell whether a store is dead; as long as the block lasts it cannot come to life."""
    try:
        fd = os.open(probe_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield True
        return
    except PermissionError:
        yield False  # Of another user, whose holder may have any name.
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            dead = True
        except BlockingIOError:
            dead = False
        yield dead
    finally:
        os.close(fd)
