"""The store in one SQLite file, which all gateways of one machine may share.

A commit survives the death of every process, but the last ones may be lost with the machine: the
log is not synced to disk for each, which would cost more than all the rest.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from services.gateway.core.detached import LanePosition, OwnerName
from services.gateway.store.busy import StoreBusy
from services.gateway.store.rows import RequestRow, taken_by
from stagemesh.errors import BadSettings, MeshError
from stagemesh.outcome import Terminal, error_for

__all__ = ["SCHEMA", "SqliteStore"]

SCHEMA: Final = 1
"""The number of the schema, in the file's `user_version`; one without a schema has 0."""

_TABLES: Final = (
    """
    CREATE TABLE requests (
        request_id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        owner_id TEXT NOT NULL,
        owner_incarnation TEXT NOT NULL,
        owner_since INTEGER NOT NULL,
        revision TEXT NOT NULL,
        deadline_at_s REAL NOT NULL,
        detach_s REAL NOT NULL,
        streamed INTEGER NOT NULL,
        lanes TEXT NOT NULL,
        terminal TEXT,
        ended_at_s REAL
    )
    """,
    # What makes a row large lies elsewhere: each commit writes the whole of its row again.
    """
    CREATE TABLE originals (
        request_id TEXT NOT NULL PRIMARY KEY,
        request BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE contents (
        request_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (request_id, number)
    )
    """,
    "CREATE INDEX requests_by_end ON requests (ended_at_s) WHERE ended_at_s IS NOT NULL",
    "CREATE INDEX requests_by_deadline ON requests (deadline_at_s)",
)
_COLUMNS: Final = (
    "request_id, tenant, epoch, owner_id, owner_incarnation, owner_since, revision,"
    " deadline_at_s, detach_s, streamed, lanes, terminal"
)
_HELD: Final = "WHERE request_id = ? AND epoch = ? AND terminal IS NULL"
_OVER: Final = "SELECT request_id FROM requests WHERE ended_at_s < ? OR deadline_at_s < ? LIMIT ?"
_REMOVED_AT_ONCE: Final = 50
"""How many requests are removed in one transaction, for which the file is held."""
_REMOVING_S: Final = 0.05
"""How long one such transaction goes on to the next request: large ones take longer."""
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class SqliteStore:
    """See `RequestStore`; everything is done by one thread, in the order in which it was asked."""

    def __init__(self, path: Path, *, busy_s: float = 5.0) -> None:
        """Note where the file is; other processes may hold it for `busy_s` at once."""
        self._path = path
        self._busy_s = busy_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="request-store")
        self._file: sqlite3.Connection

    async def open(self) -> Self:
        """Open the file, and make it if there is none.

        Raises:
            BadSettings: If it cannot be opened, or is of another schema.
        """
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._connect)
        except (OSError, sqlite3.Error, BadSettings) as error:
            self._thread.shutdown()
            raise BadSettings(f"store {self._path}: {error}") from error
        return self

    async def create(self, row: RequestRow, request: bytes) -> bool:
        """See `RequestStore`."""
        marks = ", ".join("?" * len(_COLUMNS.split(",")))

        def create(file: sqlite3.Connection) -> bool:
            done = file.execute(
                f"INSERT INTO requests ({_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING",
                _values(row),
            )
            if done.rowcount == 0:
                return False
            file.execute("INSERT INTO originals VALUES (?, ?)", (row.request_id, request))
            return True

        return await self._do(create)

    async def read(self, request_id: str) -> RequestRow | None:
        """See `RequestStore`."""
        return await self._run(lambda: _read(self._file, request_id))

    async def request(self, request_id: str) -> bytes | None:
        """See `RequestStore`."""
        query = "SELECT request FROM originals WHERE request_id = ?"
        found = await self._run(lambda: self._file.execute(query, (request_id,)).fetchone())
        return None if found is None else bytes(found[0])

    async def take(
        self, request_id: str, epoch: int, owner: OwnerName, revision: str
    ) -> RequestRow | None:
        """See `RequestStore`."""

        def take(file: sqlite3.Connection) -> RequestRow | None:
            row = _read(file, request_id)
            if row is None or row.epoch != epoch or row.terminal is not None:
                return None
            row = taken_by(row, owner, revision)
            file.execute(
                "UPDATE requests SET epoch = ?, owner_id = ?, owner_incarnation = ?,"
                f" owner_since = ?, revision = ? {_HELD}",
                (
                    row.epoch,
                    owner.id,
                    str(owner.incarnation),
                    row.owner_since,
                    revision,
                    request_id,
                    epoch,
                ),
            )
            return row

        return await self._do(take)

    async def commit(
        self, request_id: str, epoch: int, lanes: Sequence[LanePosition], content: bytes
    ) -> bool:
        """See `RequestStore`."""

        def commit(file: sqlite3.Connection) -> bool:
            done = file.execute(
                f"UPDATE requests SET lanes = ? {_HELD}", (_json(lanes), request_id, epoch)
            )
            if done.rowcount == 0:
                return False
            _append(file, request_id, content)
            return True

        return await self._do(commit)

    async def finish(
        self,
        request_id: str,
        epoch: int,
        terminal: Terminal,
        *,
        ended_at_s: float,
        lanes: Sequence[LanePosition] | None = None,
        content: bytes = b"",
    ) -> bool:
        """See `RequestStore`."""

        def finish(file: sqlite3.Connection) -> bool:
            done = file.execute(
                "UPDATE requests SET lanes = COALESCE(?, lanes), terminal = ?, ended_at_s = ?"
                f" {_HELD}",
                (
                    None if lanes is None else _json(lanes),
                    _json(terminal),
                    ended_at_s,
                    request_id,
                    epoch,
                ),
            )
            if done.rowcount == 0:
                return False
            _append(file, request_id, content)
            return True

        return await self._do(finish)

    async def contents(self, request_id: str) -> list[bytes]:
        """See `RequestStore`."""
        query = "SELECT content FROM contents WHERE request_id = ? ORDER BY number"
        return await self._run(
            lambda: [content for (content,) in self._file.execute(query, (request_id,))]
        )

    async def remove(self, before_s: float) -> int:
        """See `RequestStore`."""

        def remove(file: sqlite3.Connection) -> int:
            ends_s = time.monotonic() + _REMOVING_S
            count = 0
            for name in file.execute(_OVER, (before_s, before_s, _REMOVED_AT_ONCE)).fetchall():
                for table in ("contents", "originals", "requests"):
                    file.execute(f"DELETE FROM {table} WHERE request_id = ?", name)
                count += 1
                if time.monotonic() >= ends_s:
                    break
            return count

        removed, begun_s = 0, time.monotonic()
        while count := await self._do(remove):
            removed += count
            # Whoever else wants the file has it at least as long as this.
            await asyncio.sleep(time.monotonic() - begun_s)
            begun_s = time.monotonic()
        return removed

    async def close(self) -> None:
        """See `RequestStore`."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something in one transaction."""

        def whole() -> _T:
            with _transaction(self._file):
                return work(self._file)

        return await self._run(whole)

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Have the thread do something.

        Raises:
            MeshError: If the file cannot be used; `StoreBusy` if others hold it.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            # Errors of the module itself have no code; the low byte is the kind.
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY
            kind = StoreBusy if busy else MeshError
            raise kind(
                error_for("internal_error", f"The request store failed: {error}.")
            ) from error

    def _connect(self) -> None:
        # What clients said is nobody else's business; SQLite's other files are like this one.
        self._path.touch(mode=0o600)
        self._file = file = sqlite3.connect(self._path, timeout=self._busy_s, isolation_level=None)
        file.execute("PRAGMA synchronous = NORMAL")
        with _transaction(file):
            (schema,) = file.execute("PRAGMA user_version").fetchone()
            if schema == 0:
                for table in _TABLES:
                    file.execute(table)
                file.execute(f"PRAGMA user_version = {SCHEMA}")
            elif schema != SCHEMA:
                raise BadSettings(f"it has schema {schema}, and this program knows {SCHEMA}")
        file.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _transaction(file: sqlite3.Connection) -> Iterator[None]:
    """Do all or nothing; whoever else writes is waited for at its begin, never in its middle."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise


def _read(file: sqlite3.Connection, request_id: str) -> RequestRow | None:
    """Read a row.

    Raises:
        MeshError: If it is not one that this program wrote.
    """
    found = file.execute(f"SELECT {_COLUMNS} FROM requests WHERE request_id = ?", (request_id,))
    columns: tuple[Any, ...] | None = found.fetchone()
    if columns is None:
        return None
    try:
        return _row_of(columns)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        _log.exception("request_row_damaged", extra={"request_id": request_id})
        raise MeshError(
            error_for("internal_error", "The request store failed: a row is damaged.")
        ) from error


def _row_of(columns: tuple[Any, ...]) -> RequestRow:
    name, tenant, epoch, owner_id, incarnation, since, revision, *rest = columns
    deadline_at_s, detach_s, streamed, lanes, terminal = rest
    return RequestRow(
        request_id=name,
        tenant=tenant,
        epoch=epoch,
        owner=OwnerName(owner_id, int(incarnation)),
        owner_since=since,
        revision=revision,
        deadline_at_s=deadline_at_s,
        detach_s=detach_s,
        streamed=bool(streamed),
        lanes=msgspec.json.decode(lanes, type=tuple[LanePosition, ...]),
        terminal=None if terminal is None else msgspec.json.decode(terminal, type=Terminal),
    )


def _values(row: RequestRow) -> tuple[object, ...]:
    """Give a row's columns; an incarnation is more than an integer of SQLite holds."""
    return (
        row.request_id, row.tenant, row.epoch, row.owner.id, str(row.owner.incarnation),
        row.owner_since, row.revision, row.deadline_at_s, row.detach_s, row.streamed,
        _json(row.lanes), None if row.terminal is None else _json(row.terminal),
    )  # fmt: skip


def _append(file: sqlite3.Connection, request_id: str, content: bytes) -> None:
    if content:
        file.execute(
            "INSERT INTO contents (request_id, number, content)"
            " SELECT ?, COALESCE(MAX(number) + 1, 0), ? FROM contents WHERE request_id = ?",
            (request_id, content, request_id),
        )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
