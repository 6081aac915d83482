"""Files of released payloads, kept to be written again.

New pages cost more than all the rest of a put, so a large file is not removed when its payload is
released, but renamed to what the next handle will be called. Readers map files and may keep the
mapping after the release, so such a file is written only once nobody else has it open. The kernel
tells that, by granting a lease (`fcntl(2)`, `F_SETLEASE`): it counts descriptors and mappings,
those of forked children and of readers that know nothing of this too, and forgets those of the
dead. Who opens a file too late to be counted finds its name gone: see `files.open_named`.
"""

import os
from pathlib import Path
from typing import Final
from weakref import WeakSet

import msgspec

from stagemesh.ids import HandleId, new_handle_id
from stagemesh.payload.files import file_path
from stagemesh.payload.stored import StoredFile
from stagemesh.telemetry import metrics

__all__ = ["SPARE_BYTES_MIN", "Spares"]

SPARE_BYTES_MIN: Final = 256 * 1024
"""Below this, a new file is as fast."""

_FILES_MAX: Final = 64
"""Each has two descriptors, and so have as many that were given out."""

_TRIES_MAX: Final = 4
# The directory is shared with other stores, which cannot ask this one to make way.
_SHARE_OF_DIRECTORY: Final = 8

_warm = metrics.gauge(
    "payload_warm_bytes", "Bytes of files that are kept for payloads to come, beside those held."
)
_rewritten = metrics.counter(
    "payload_files_rewritten", "Puts that were written to the file of a released payload."
)


class _Spare(msgspec.Struct, frozen=True):
    handle_id: HandleId
    file: StoredFile
    until_s: float


class Spares:
    """The released files of one store, by age; `bytes_used` is what they take."""

    def __init__(self, directory: Path, prefix: str, *, bytes_max: int, keep_s: float) -> None:
        """Start empty; keep nothing if `bytes_max` is 0 or the kernel cannot tell who reads.

        A file goes `keep_s` after its release, so that an idle process gives its memory back.
        """
        self._directory = directory
        self._prefix = prefix
        self._keep_s = keep_s
        # The longest released first, which most likely nobody reads any more.
        self._spares: list[_Spare] = []
        self._given: WeakSet[StoredFile] = WeakSet()
        self.bytes_used = 0
        self._bytes_max = 0
        if bytes_max and _users_are_counted(self._path(new_handle_id())):
            room = os.statvfs(directory)
            share = room.f_blocks * room.f_frsize // _SHARE_OF_DIRECTORY
            self._bytes_max = min(bytes_max, share)

    def keep(self, file: StoredFile, now_s: float) -> None:
        """Take over the file of a released payload, or remove it; its name is gone on return."""
        self._given.discard(file)
        if not SPARE_BYTES_MIN <= file.size_bytes <= self._bytes_max:
            file.remove()
            return
        while len(self._spares) >= _FILES_MAX:
            self._drop_oldest()
        self._drop_above(self._bytes_max - file.size_bytes)
        handle_id = new_handle_id()
        try:
            file.rename(self._path(handle_id))
        except FileNotFoundError:  # Somebody tidied the directory up.
            file.remove()
            return
        self._spares.append(_Spare(handle_id, file, now_s + self._keep_s))
        self._count(file.size_bytes)

    def take(self, size_bytes: int) -> tuple[HandleId, StoredFile] | None:
        """Give a file that nobody else has open, to be written, and the handle that it is named by.

        It is large enough, and less than twice as large; the tightest is tried first.
        """
        if len(self._given) >= _FILES_MAX:
            return None
        fitting = [
            spare for spare in self._spares if size_bytes <= spare.file.size_bytes < 2 * size_bytes
        ]
        fitting.sort(key=lambda spare: spare.file.size_bytes)
        for spare in fitting[:_TRIES_MAX]:
            if spare.file.has_no_other_user():
                self._spares.remove(spare)
                self._given.add(spare.file)
                self._count(-spare.file.size_bytes)
                _rewritten.labels().inc()
                return spare.handle_id, spare.file
        return None

    def make_way(self, size_bytes: int, bytes_max: int) -> None:
        """Remove what stands in the way of a payload: above `bytes_max`, or in a full directory."""
        self._drop_above(bytes_max)
        if self._spares:
            room = os.statvfs(self._directory)
            if room.f_bavail * room.f_frsize < size_bytes:
                self._drop_above(0)

    def sweep(self, now_s: float) -> None:
        """Remove what nobody needed for `keep_s`."""
        while self._spares and self._spares[0].until_s <= now_s:
            self._drop_oldest()

    def close(self) -> None:
        """Remove everything, and keep nothing from now on. Safe to call twice."""
        self._bytes_max = 0
        self._drop_above(0)

    def _drop_above(self, bytes_max: int) -> None:
        while self._spares and self.bytes_used > bytes_max:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        spare = self._spares.pop(0)
        self._count(-spare.file.size_bytes)
        spare.file.remove()

    def _count(self, size_bytes: int) -> None:
        self.bytes_used += size_bytes
        _warm.labels().set(self.bytes_used)

    def _path(self, handle_id: str) -> Path:
        return file_path(self._directory, self._prefix, handle_id)


def _users_are_counted(path: Path) -> bool:
    """Try it out: sandboxes and network file systems may refuse leases, or grant any."""
    file = StoredFile(path)
    try:
        file.write(memoryview(b"tried"))
        with path.open("rb"):
            counted = not file.has_no_other_user()
        return counted and file.has_no_other_user()
    finally:
        file.remove()
