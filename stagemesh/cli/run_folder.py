"""The folder of one running mesh, found by the address of its first gateway."""

import fcntl
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["AlreadyRunning", "NotRunning", "RunFolder", "cache_root", "read_state"]

_STATE: Final = "state.json"
_LOCK: Final = "lock"
_ENDED_MAX: Final = 8
"""So many folders of ended runs are kept, for their logs."""


class AlreadyRunning(OSError):
    """Another mesh runs at this address; the message says which process started it."""


class NotRunning(OSError):
    """No mesh runs at this address."""


def cache_root() -> Path:
    """Give the folder in which everything of ours that outlives a process is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "stagemesh"


def _folder_of(address: str) -> Path:
    return cache_root() / "run" / address.replace("/", "_")


class RunFolder:
    """The launcher's side: holds the folder as long as the mesh runs.

    The lock ends with the process that holds it, however that ends, so nothing in the folder can
    pretend that a mesh runs when it does not. A folder is removed only by who holds its lock.
    """

    def __init__(self, address: str) -> None:
        self.path = _folder_of(address)
        self._lock = -1
        self._wanted = True

    def __enter__(self) -> Self:
        """Take the folder and empty it of an earlier run, whose logs are kept until then.

        Raises:
            AlreadyRunning: If somebody else holds it.
        """
        lock = None
        while lock is None:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                lock = _take(self.path)
            except BlockingIOError as error:
                raise AlreadyRunning(
                    f"a mesh runs there already; its files are in {self.path}"
                ) from error
        self._lock = lock
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir()
        _remove_old(self.path.parent)
        return self

    def __exit__(self, *_: object) -> None:
        """Let go; the state goes, and the logs stay if anybody may want them."""
        if self._wanted:
            with suppress(FileNotFoundError):
                (self.path / _STATE).unlink()
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def forget(self) -> None:
        """Let nothing stay at the end: there is nothing to be learnt from this run."""
        self._wanted = False

    @property
    def logs(self) -> Path:
        """Where the processes' logs are."""
        return self.path / "logs"

    def write(self, name: str, text: str) -> Path:
        """Put a file there, so that readers see the old one or the new one and nothing between."""
        path = self.path / name
        draft = self.path / f".{name}.draft"
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
        return path

    def write_state(self, processes: Sequence[Mapping[str, Any]], *, ready: bool) -> None:
        """Tell `status` what there is."""
        state = {"launcher_pid": os.getpid(), "ready": ready, "processes": list(processes)}
        self.write(_STATE, json.dumps(state, indent=1) + "\n")


def read_state(address: str) -> dict[str, Any]:
    """Read what the launcher at `address` says.

    Raises:
        NotRunning: If there is none.
    """
    folder = _folder_of(address)
    try:
        with (folder / _LOCK).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                state: dict[str, Any] = json.loads((folder / _STATE).read_text(encoding="utf-8"))
                return state
    except FileNotFoundError:
        pass
    raise NotRunning(f"no mesh runs at {address}; `stagemesh up` starts one")


def _take(folder: Path) -> int | None:
    """Lock a folder; None if it was removed meanwhile.

    Raises:
        BlockingIOError: If somebody else holds it.
    """
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    if os.fstat(lock).st_nlink:
        return lock
    os.close(lock)
    return None


def _remove_old(parent: Path) -> None:
    """Remove the folders of all ended runs but the last ones."""
    folders = sorted(parent.iterdir(), key=_age)
    ended = 0
    for folder in folders:
        with suppress(OSError):
            lock = _take(folder)
            if lock is None:
                continue
            ended += 1
            if ended > _ENDED_MAX:
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _age(folder: Path) -> float:
    """Give a number that is smaller the later somebody wrote there."""
    try:
        return -folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0
