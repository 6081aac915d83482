"""Holds bytes for others: one file in shared memory for each handle, bound to a request."""

import asyncio
import hashlib
import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from stagemesh.errors import MeshError
from stagemesh.ids import HandleId, new_handle_id
from stagemesh.media import Handle
from stagemesh.outcome import error_for
from stagemesh.payload.files import ProbeFile, file_path, remove_dead, store_prefix
from stagemesh.payload.spares import Spares
from stagemesh.payload.stored import StoredFile
from stagemesh.telemetry import metrics

__all__ = ["DIGEST_AT_PUT_BYTES_MAX", "DIGEST_BYTES", "WARM_BYTES_MAX", "PayloadStore"]

DIGEST_BYTES: Final = 16
DIGEST_AT_PUT_BYTES_MAX: Final = 1024 * 1024
"""Above this, hashing would cost more than all the rest of a transfer on one host, which needs it
least. The digest then comes with the last chunk of a fetch, and the handle has none."""

WARM_BYTES_MAX: Final = 256 * 1024 * 1024
"""How much a store keeps of released files unless it is told: four of 64 MiB, since a reader often
has the last payload still in use when the next but one is put."""

_HANDLES_MAX: Final = 65_536
_RETRY_AFTER_S: Final = 1.0
_WRITERS: Final = 2

_held = metrics.gauge("payload_held_bytes", "Bytes that the payload store of this process holds.")
_refused = metrics.counter("payload_puts_refused", "Puts that the store had no room for.")

Bytes = bytes | bytearray | memoryview


class _Entry(msgspec.Struct):
    request_id: str
    file: StoredFile
    digest: bytes


class PayloadStore:
    """The payload store of one process.

    A handle lives until it is released, until its request's lease ends, or until `close`. Reading
    does not consume it. Nothing here waits: a put that has no room fails `OVERLOADED`. All methods
    belong to one thread, which is the event loop's; only `put_large` uses another one.
    """

    def __init__(
        self,
        *,
        holder_id: str,
        incarnation: int,
        address: str,
        directory: Path,
        bytes_max: int,
        lease_s: float,
        warm_bytes_max: int = WARM_BYTES_MAX,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Start empty, and remove what dead stores of the same holder left in `directory`.

        `address` is where `PayloadService` listens; it may be set later, before the first put. Of
        released files up to `warm_bytes_max` are kept for `lease_s`, to be written again; they are
        part of `bytes_max`, and make way for what is put.

        Raises:
            OSError: If the directory cannot be written.
        """
        remove_dead(directory, holder_id)
        self._prefix = store_prefix(holder_id, incarnation)
        self._probe_file = ProbeFile(directory, self._prefix)
        self._directory = directory
        self._holder_id = holder_id
        self._incarnation = incarnation
        self.address = address
        self._bytes_max = bytes_max
        self._lease_s = lease_s
        self._clock = clock
        self._spares = Spares(
            directory, self._prefix, bytes_max=min(warm_bytes_max, bytes_max), keep_s=lease_s
        )
        self._entries: dict[str, _Entry] = {}
        self._requests: dict[str, set[str]] = {}
        self._leases: dict[str, float] = {}
        self._bytes_used = 0
        self._closed = False
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="payload")

    @property
    def bytes_used(self) -> int:
        """How many bytes are held, or promised to a put that is under way."""
        return self._bytes_used

    @property
    def warm_bytes(self) -> int:
        """How many bytes of released files are kept for puts to come."""
        return self._spares.bytes_used

    def put(self, data: Bytes, request_id: str) -> Handle:
        """Copy bytes into the store, at about 0.5 ms a MiB; see `put_large` for more than a few.

        Raises:
            MeshError: With `OVERLOADED`, if there is no room for them now.
        """
        view = memoryview(data).cast("B")
        handle_id, file = self._admit(view.nbytes)
        try:
            digest = _write(file, view)
        except OSError as error:
            self._bytes_used -= view.nbytes
            raise _no_room(str(error)) from error
        return self._keep(handle_id, file, request_id, digest)

    async def put_large(self, data: Bytes, request_id: str) -> Handle:
        """Copy bytes into the store in a thread; they must not change meanwhile.

        Raises:
            MeshError: With `OVERLOADED`, if there is no room for them now.
        """
        view = memoryview(data).cast("B")
        handle_id, file = self._admit(view.nbytes)
        work = self._writers.submit(_write, file, view)
        try:
            digest = await asyncio.wrap_future(work)
        except OSError as error:
            self._bytes_used -= view.nbytes
            raise _no_room(str(error)) from error
        except asyncio.CancelledError:
            self._bytes_used -= view.nbytes
            # The thread writes on; what it wrote goes when it is done.
            work.add_done_callback(lambda _: file.remove())
            raise
        return self._keep(handle_id, file, request_id, digest)

    def read(self, handle_id: str, request_id: str, offset: int = 0) -> memoryview:
        """Give the bytes of a handle from an offset, without copying them.

        Raises:
            MeshError: With reason `handle_lost`, if there is no such handle of that request.
        """
        entry = self._entry(handle_id, request_id)
        if entry.file.size_bytes <= offset:
            return memoryview(b"")
        with entry.file.path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))[offset:]

    @staticmethod
    def digest_at_put(data: Bytes) -> bytes:
        """Give the digest that a handle for these bytes gets when they are put; empty for many."""
        view = memoryview(data)
        if view.nbytes > DIGEST_AT_PUT_BYTES_MAX:
            return b""
        return hashlib.blake2b(view, digest_size=DIGEST_BYTES).digest()

    def digest(self, handle_id: str, request_id: str) -> bytes:
        """Give the digest of a handle's bytes if it is known, else nothing.

        Raises:
            MeshError: With reason `handle_lost`, if there is no such handle of that request.
        """
        return self._entry(handle_id, request_id).digest

    def held(self, request_id: str, handle_ids: Sequence[str]) -> tuple[str, ...]:
        """Tell which of these handles of a request are here."""
        owned = self._requests.get(request_id, set())
        return tuple(handle_id for handle_id in handle_ids if handle_id in owned)

    def release(self, request_id: str, handle_ids: Sequence[str] = ()) -> int:
        """Drop handles of a request, all if none are named; return how many there were."""
        owned = self._requests.get(request_id, set())
        going = owned.intersection(handle_ids) if handle_ids else set(owned)
        for handle_id in going:
            entry = self._entries.pop(handle_id)
            self._bytes_used -= entry.file.size_bytes
            self._spares.keep(entry.file, self._clock())
        owned -= going
        if not owned:
            self._requests.pop(request_id, None)
            self._leases.pop(request_id, None)
        _held.labels().set(self._bytes_used)
        return len(going)

    def renew(self, request_id: str, now_s: float) -> None:
        """Let a request's handles live for another lease from now."""
        if request_id in self._leases:
            self._leases[request_id] = now_s + self._lease_s

    def sweep(self, now_s: float) -> int:
        """Drop the handles of requests whose lease has ended; return how many there were.

        Files that were kept for puts that did not come go too.
        """
        self._spares.sweep(now_s)
        ended = [request_id for request_id, end_s in self._leases.items() if end_s <= now_s]
        return sum(self.release(request_id) for request_id in ended)

    def close(self) -> None:
        """Drop everything. Safe to call twice; puts fail from now on."""
        self._closed = True
        self._writers.shutdown()
        self._spares.close()
        for request_id in list(self._requests):
            self.release(request_id)
        self._probe_file.close()

    def _admit(self, size_bytes: int) -> tuple[HandleId, StoredFile]:
        if (
            self._closed
            or self._bytes_used + size_bytes > self._bytes_max
            or len(self._entries) >= _HANDLES_MAX
        ):
            _refused.labels().inc()
            raise _no_room("the payload store is full", retryable=size_bytes <= self._bytes_max)
        self._bytes_used += size_bytes
        spare = self._spares.take(size_bytes)
        new_bytes = 0 if spare else size_bytes
        self._spares.make_way(new_bytes, self._bytes_max - self._bytes_used)
        if spare is not None:
            return spare
        handle_id = new_handle_id()
        return handle_id, StoredFile(file_path(self._directory, self._prefix, handle_id))

    def _keep(
        self, handle_id: HandleId, file: StoredFile, request_id: str, digest: bytes
    ) -> Handle:
        if self._closed:
            file.remove()
            self._bytes_used -= file.size_bytes
            raise _no_room("the payload store is closed")
        self._entries[handle_id] = _Entry(request_id, file, digest)
        self._requests.setdefault(request_id, set()).add(handle_id)
        self._leases[request_id] = self._clock() + self._lease_s
        _held.labels().set(self._bytes_used)
        return Handle(
            handle_id=handle_id,
            request_id=request_id,
            holder_id=self._holder_id,
            incarnation=self._incarnation,
            address=self.address,
            probe=self._probe_file.probe,
            size_bytes=file.size_bytes,
            digest=digest,
        )

    def _entry(self, handle_id: str, request_id: str) -> _Entry:
        entry = self._entries.get(handle_id)
        # One answer for both, so that nobody learns that a handle of another request exists.
        if entry is None or entry.request_id != request_id:
            raise MeshError(error_for("handle_lost"))
        return entry


def _write(file: StoredFile, view: memoryview) -> bytes:
    file.write(view)
    return PayloadStore.digest_at_put(view)


def _no_room(message: str, *, retryable: bool = True) -> MeshError:
    after_s = _RETRY_AFTER_S if retryable else None
    return MeshError(
        error_for("payload_store_full", message, retryable=retryable, retry_after_s=after_s)
    )
