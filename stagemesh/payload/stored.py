"""One file of a payload store, from its creation to its removal."""

import fcntl
import mmap
import os
import signal
import sys
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

__all__ = ["StoredFile"]

_OPENED_AGAIN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
# Of `madvise(2)`, since Linux 5.14; `mmap` does not name it.
_MADV_POPULATE_READ: Final = 22
# Copies and `madvise` hold the interpreter's lock, at about 0.1 and 0.3 ms a MiB; between two of
# them other threads get it, if they have waited for as long as the interpreter lets them.
_COPIED_AT_ONCE_BYTES: Final = 1024 * 1024
_POPULATED_AT_ONCE_BYTES: Final = 1024 * 1024


class StoredFile:
    """A file that is written once, or again and again while nobody else has it open.

    A file that is written again stays open and mapped: its pages are there, and writing it is a
    copy and no more. One thread at a time.
    """

    def __init__(self, path: Path) -> None:
        """Give it a name; there is nothing before `write`."""
        self.path = path
        self.size_bytes = 0
        self._file: FileIO | None = None
        self._pages: mmap.mmap | None = None

    def write(self, view: memoryview) -> None:
        """Create it with these bytes; or, if it `has_no_other_user`, write them over the old ones.

        Never more than there were: memory that is not there ends a process that writes to it.

        Raises:
            OSError: If there is no room; then nothing of the file is left.
        """
        try:
            if self._file is None:
                _create(self.path, view)
            else:
                self._overwrite(self._file.fileno(), view)
        except BaseException:
            self.remove()
            raise
        self.size_bytes = view.nbytes

    def has_no_other_user(self) -> bool:
        """Tell whether nobody has it open or mapped but this object; False if in doubt.

        Who opens it later, by its present name, is not counted: nobody may know that name yet.
        """
        if sys.platform != "linux":
            return False
        try:
            if self._file is None:
                self._file = FileIO(os.open(self.path, _OPENED_AGAIN), "r+")
            fd = self._file.fileno()
            # A reader that opens the file while the lease lasts has the kernel signal its holder,
            # and the signal that it sends by itself, SIGIO, would end it; this one is ignored.
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return False
        return True

    def rename(self, path: Path) -> None:
        """Give it another name.

        Raises:
            FileNotFoundError: If somebody removed it.
        """
        self.path.rename(path)
        self.path = path

    def remove(self) -> None:
        """Remove it; its memory is free once nobody has it mapped. Safe to call twice."""
        # The last to let go frees the pages; `unlink` does that without the interpreter's lock.
        if self._pages is not None:
            self._pages.close()
            self._pages = None
        if self._file is not None:
            self._file.close()
            self._file = None
        self.path.unlink(missing_ok=True)

    def _overwrite(self, fd: int, view: memoryview) -> None:
        if self._pages is None:
            self._pages = mmap.mmap(fd, self.size_bytes)
            _fill_page_table(self._pages, view.nbytes)
        os.ftruncate(fd, view.nbytes)
        for start in range(0, view.nbytes, _COPIED_AT_ONCE_BYTES):
            end = min(start + _COPIED_AT_ONCE_BYTES, view.nbytes)
            self._pages[start:end] = view[start:end]


def _create(path: Path, view: memoryview) -> None:
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        done = 0
        while done < view.nbytes:
            done += os.write(fd, view[done:])
    finally:
        os.close(fd)


def _fill_page_table(pages: mmap.mmap, size_bytes: int) -> None:
    """Make the first copy cheaper: else each page costs a fault of its own."""
    for start in range(0, size_bytes, _POPULATED_AT_ONCE_BYTES):
        with suppress(OSError):  # An older kernel: the copy takes the faults.
            length = min(_POPULATED_AT_ONCE_BYTES, size_bytes - start)
            pages.madvise(_MADV_POPULATE_READ, start, length)
