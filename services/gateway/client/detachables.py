"""Requests that may outlive this gateway: opened here, or taken over from another one."""

import asyncio
import logging
import time
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from services.gateway.client.detachable import Detachable, Keep
from services.gateway.client.exchange import Exchange
from services.gateway.client.orchestrators import Orchestrators
from services.gateway.client.peers import Peer
from services.gateway.store import RequestRow, RequestStore, insist
from services.gateway.translate import request_bytes, request_of
from stagemesh.errors import MeshError
from stagemesh.media import Request
from stagemesh.outcome import Outcome, Terminal, error_for

__all__ = ["Detachables", "Ended"]

_LEAST_S: Final = 0.001
_SWEEPS: Final = 24
"""How often in `ended_keep_s` it is looked for what is to be removed."""
_SWEEP_LEAST_S: Final = 1.0

_log = logging.getLogger(__name__)


class Ended(msgspec.Struct, kw_only=True):
    """A request that is over: what was committed of it, and its end."""

    contents: list[bytes]
    terminal: Terminal


class Detachables:
    """Gives out such requests while `run` runs; a request is one gateway's at a time."""

    def __init__(self, orchestrators: Orchestrators, store: RequestStore) -> None:
        self._orchestrators = orchestrators
        self._store = store
        self._held: dict[str, Detachable] = {}
        # One that was taken over here may still write, in vain, beside the one that took it.
        self._writers: set[asyncio.Task[None]] = set()
        # Whoever writes for a request, or takes it over, has its lock meanwhile.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks = asyncio.TaskGroup()

    async def open(
        self,
        request: Request,
        *,
        request_id: str,
        detach_s: float,
        keep: Keep,
        deadline_s: float = 0.0,
        streamed: bool = False,
    ) -> Detachable:
        """Store a request, then give it to an orchestrator.

        `keep` makes of rows what is stored with their positions, for whoever takes it over.

        The input of a `streamed` one is given to it piece by piece; it outlives this gateway only
        once that has ended.

        Raises:
            MeshError: If none can take it, it is too large, or its id is not new.
            ValueError: If `detach_s` is not above zero.
        """
        if detach_s <= 0:
            raise ValueError("detach_s must be above zero")
        orchestrators = self._orchestrators
        orchestrators.peer_for(request.model)  # Before anything is stored.
        sent = await orchestrators.put(request, request_id)
        try:
            peer = orchestrators.peer_for(request.model)
            deadline_s = orchestrators.deadline_of(peer, request.model, deadline_s)
            row = RequestRow(
                request_id=request_id,
                tenant=request.tenant,
                epoch=1,
                owner=peer.name,
                owner_since=1,
                revision=peer.revision_of(request.model),
                deadline_at_s=time.time() + (deadline_s or orchestrators.policy.deadline_max_s),
                detach_s=detach_s,
                streamed=streamed,
            )
            if not await self._store.create(row, request_bytes(request)):
                raise MeshError(error_for("conflict", "There is a request of this id already."))
            exchange = orchestrators.exchange(sent, request_id, streamed=streamed)
            lock = self._lock_of(request_id)
            detachable = Detachable(exchange, self._store, row, keep, lock=lock)
            await self._start(exchange, peer, deadline_s)
        except BaseException:
            orchestrators.forget(request_id)
            raise
        return self._hold(detachable)

    async def take_over(self, request_id: str, *, tenant: str, keep: Keep) -> Detachable | Ended:
        """Go on with a tenant's request where its gateway left it, or is just about to.

        If this very gateway has it, its consumer so far loses it like any other. What should have
        ended by now is ended.

        Raises:
            MeshError: If there is no such request, nobody can go on with it now, or yet another
                gateway was first. Then nothing has changed, unless the store failed after it was
                taken: then nobody has it until somebody takes it over.
        """
        row = await self._row(request_id)
        if row.tenant != tenant:  # Other tenants' are as good as unknown.
            raise MeshError(error_for("request_not_found"))
        if row.terminal is not None:
            return await self._ended(row)
        if row.deadline_at_s <= time.time():
            return await self._expire(row)
        stored = await self._store.request(request_id)
        if stored is None:
            raise MeshError(error_for("request_not_found"))
        request = request_of(stored)
        self._successor(row, request.model)  # Before anything is put.
        sent = await self._orchestrators.put(request, request_id)
        try:
            lock = self._lock_of(request_id)
            async with lock:
                taken = await self._take_over(await self._row(request_id), sent, keep, lock)
        except BaseException:
            self._orchestrators.forget(request_id)
            raise
        if isinstance(taken, Ended):
            self._orchestrators.forget(request_id)
        return taken

    async def run(self) -> None:
        """Let requests write, and remove what ended long ago, until cancelled."""
        keep_s = self._orchestrators.policy.ended_keep_s
        async with self._tasks:
            while True:
                try:
                    await self._store.remove(time.time() - keep_s)
                except MeshError as error:
                    _log.warning("request_store_failed", extra={"reason": error.info.message})
                await asyncio.sleep(max(_SWEEP_LEAST_S, keep_s / _SWEEPS))

    async def close(self) -> None:
        """Leave what is open to other gateways, once what has its end is written."""
        for detachable in self._held.values():
            detachable.leave(error_for("draining"))
        if self._writers:
            await asyncio.wait(self._writers)

    async def _start(self, exchange: Exchange, peer: Peer, deadline_s: float) -> None:
        """Give an exchange that is stored to its first owner; what is too large ends in the store.

        Raises:
            MeshError: If it is too large.
        """
        try:
            self._orchestrators.start(exchange, peer, deadline_s)
        except MeshError as error:
            terminal = Terminal(outcome=Outcome.REJECTED, error=error.info)
            await self._store.finish(exchange.request_id, 1, terminal, ended_at_s=time.time())
            raise

    async def _take_over(
        self, row: RequestRow, sent: Request, keep: Keep, lock: asyncio.Lock
    ) -> Detachable | Ended:
        """Take the next epoch, then leave what had it here, and go on."""
        if row.terminal is not None:
            return await self._ended(row)
        orchestrators, request_id, store = self._orchestrators, row.request_id, self._store
        peer = self._successor(row, sent.model)
        # What nothing is committed of has the revision of whoever begins it.
        revision = row.revision if row.lanes else peer.revision_of(sent.model)
        taken = await insist(
            lambda: store.take(request_id, row.epoch, peer.name, revision),
            within_s=row.detach_s / 2,
        )
        if taken is None:
            return await self._ended(await self._row(request_id))
        # From now on nothing more can be committed before.
        contents = await store.contents(request_id)
        exchange = orchestrators.exchange(
            sent, request_id, begun=taken.lanes, revision=taken.revision, streamed=taken.streamed
        )
        detachable = Detachable(
            exchange, store, taken, keep, lock=lock, begun=True, contents=contents
        )
        if (held := self._held.get(request_id)) is not None:
            held.leave(error_for("taken_over"))
        left_s = max(_LEAST_S, taken.deadline_at_s - time.time())
        orchestrators.start(exchange, peer, left_s)
        return self._hold(detachable)

    async def _expire(self, row: RequestRow) -> Ended:
        """End a request whose time is up; whoever has it is refused from then on.

        Raises:
            MeshError: If another gateway has just taken it.
        """
        now_s = time.time()
        terminal = Terminal(outcome=Outcome.DEADLINE_EXCEEDED, error=error_for("deadline_exceeded"))
        await insist(
            lambda: self._store.finish(row.request_id, row.epoch, terminal, ended_at_s=now_s),
            within_s=row.detach_s / 2,
        )
        return await self._ended(await self._row(row.request_id))

    def _successor(self, row: RequestRow, model: str) -> Peer:
        return self._orchestrators.peer_for(model, row.owner, row.revision if row.lanes else "")

    def _hold(self, detachable: Detachable) -> Detachable:
        def let_go(task: "asyncio.Task[None]") -> None:
            self._writers.discard(task)
            if self._held.get(detachable.request_id) is detachable:
                del self._held[detachable.request_id]

        self._held[detachable.request_id] = detachable
        task = detachable.start(self._tasks)
        self._writers.add(task)
        task.add_done_callback(let_go)
        return detachable

    def _lock_of(self, request_id: str) -> asyncio.Lock:
        return self._locks.setdefault(request_id, asyncio.Lock())

    async def _row(self, request_id: str) -> RequestRow:
        """Read a row.

        Raises:
            MeshError: If there is none.
        """
        row = await self._store.read(request_id)
        if row is None:
            raise MeshError(error_for("request_not_found"))
        return row

    async def _ended(self, row: RequestRow) -> Ended:
        """Tell how a request ended.

        Raises:
            MeshError: If it has not, since another gateway took it first.
        """
        if row.terminal is None:
            raise MeshError(error_for("taken_over"))
        contents = await self._store.contents(row.request_id)
        return Ended(contents=contents, terminal=row.terminal)
