"""Control calls of operators, as one link inside this process: each waits for the core's answer."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import Protocol

from services.orchestrator.core.effects import (
    OPERATORS_LINK,
    AnswerControl,
    Effect,
    ReplicaResult,
)
from services.orchestrator.core.events import ControlAsked, Event
from services.orchestrator.driver import Outlet
from services.orchestrator.translate import KnownReplica
from stagemesh.control import Answer, Call
from stagemesh.errors import MeshError, invalid
from stagemesh.outcome import error_for

__all__ = ["Operations"]


class _Driver(Protocol):
    def connect(self, link: int, outlet: Outlet) -> None: ...

    def post(self, event: Event) -> None: ...


class Operations:
    """Makes calls; a replica that has no link fails at once, and nobody waits for it."""

    def __init__(
        self,
        driver: _Driver,
        known: Callable[[], Iterable[KnownReplica]],
    ) -> None:
        self._driver = driver
        self._known = known
        self._numbers = count(1)
        # As many as the core lets be open, and those that it is about to refuse.
        self._open: dict[int, asyncio.Future[AnswerControl]] = {}

    def __len__(self) -> int:
        """Tell how many calls wait for their answer."""
        return len(self._open)

    def attach(self) -> None:
        """Make the link known to the driver; once, before the first call."""
        self._driver.connect(OPERATORS_LINK, self)

    def perform(self, effect: Effect) -> None:
        """Hand an answer to the call that waits for it, if it still does."""
        if isinstance(effect, AnswerControl):
            waiting = self._open.pop(effect.call_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(effect)

    async def call_pools(
        self, call: Call, pools: frozenset[str], wait_s: float
    ) -> list[ReplicaResult]:
        """Call every replica of some pools.

        Raises:
            MeshError: If too many calls are open.
        """
        absent = [one for one in self._known() if one.pool in pools and not one.link]
        return await self._ask(call, absent, wait_s, pools=pools)

    async def call_replicas(
        self, call: Call, replica_ids: Collection[str], wait_s: float
    ) -> list[ReplicaResult]:
        """Call some replicas by their names, which `check` let pass.

        Raises:
            MeshError: If too many calls are open.
        """
        named = frozenset(replica_ids)
        absent = [one for one in self._known() if one.replica_id in named and not one.link]
        return await self._ask(call, absent, wait_s, replica_ids=named)

    def check(self, replica_ids: Collection[str]) -> None:
        """See whether replicas are known.

        Raises:
            MeshError: With `INVALID_ARGUMENT`, if one is not.
        """
        known = {one.replica_id for one in self._known()}
        for at, replica_id in enumerate(replica_ids):
            if replica_id not in known:
                raise invalid(
                    f"There is no replica {replica_id[:256]!r}.", param=f"replica_ids[{at}]"
                )

    async def _ask(
        self,
        call: Call,
        absent: Iterable[KnownReplica],
        wait_s: float,
        *,
        pools: frozenset[str] = frozenset(),
        replica_ids: frozenset[str] = frozenset(),
    ) -> list[ReplicaResult]:
        call_id = next(self._numbers)
        answered = asyncio.get_running_loop().create_future()
        self._open[call_id] = answered
        asked = ControlAsked(
            call_id=call_id, call=call, wait_s=wait_s, pools=pools, replica_ids=replica_ids
        )
        try:
            self._driver.post(asked)
            answer: AnswerControl = await answered  # The core answers after `wait_s` at the latest.
        finally:
            self._open.pop(call_id, None)
        if answer.error is not None:
            raise MeshError(answer.error)
        results = [*answer.results, *map(_absent, absent)]
        return sorted(results, key=lambda one: (one.pool, one.replica_id))


def _absent(known: KnownReplica) -> ReplicaResult:
    error = error_for(
        "no_replica",
        "There is no link to this replica.",
        pool=known.pool,
        replica_id=known.replica_id,
    )
    return ReplicaResult(
        pool=known.pool,
        replica_id=known.replica_id,
        incarnation=0,
        answer=Answer(error=error),
        took_s=0.0,
    )
