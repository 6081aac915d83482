"""Admission: how many requests of a pipeline run, how many wait for that, and who is next.

A conversation, whose client gives its input piece by piece, has a place as long as it is open. It
counts as running only while there is something to do for it, and asks again for each append.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.orchestrator.core.fairness import FairQueue
from services.orchestrator.core.request import OpenRequest
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for
from stagemesh.pipeline import Limits, Pipeline

__all__ = ["Admission"]

_AGAIN: Final = 2
"""How many times the limits hold for requests that another owner had."""


@dataclass(slots=True)
class _Tally:
    """How much there is of something, or how much there may be."""

    running: int = 0
    waiting: int = 0
    input_bytes: int = 0
    idle: int = 0
    requests: int = 0
    """Of all kinds: those that were set apart neither run nor wait."""
    again: int = 0
    """Of them, those that another owner had: while there are any, memory may be had twice."""


class Admission:
    """One pipeline's limits; the mesh file's totals are shared by `orchestrators`.

    Tenants take turns by their weights, and within a tenant the higher priority goes first.
    Requests that another owner had go before new ones, and up to twice as far.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        orchestrators: int,
        retry_after_s: float,
        weights: Mapping[str, float],
    ) -> None:
        self._name = pipeline.name
        self._retry_after_s = retry_after_s
        self._most, self._most_each = _shared(pipeline.limits, orchestrators)
        self._all = _Tally()
        self._each: dict[str, _Tally] = {}
        self._again: FairQueue[OpenRequest] = FairQueue(weights)
        self._new: FairQueue[OpenRequest] = FairQueue(weights)
        # Conversations that have something to do again.
        self._turns: FairQueue[OpenRequest] = FairQueue(weights)
        self._running: set[int] = set()
        self._idle: set[int] = set()

    @property
    def running(self) -> int:
        """How many requests run."""
        return self._all.running

    @property
    def waiting(self) -> int:
        """How many requests wait to run, those that have run before included."""
        return self._all.waiting

    @property
    def idle(self) -> int:
        """How many conversations have a place, and wait for their client."""
        return self._all.idle

    @property
    def waiting_most(self) -> tuple[int, int]:
        """How many may wait: of all tenants, and of each."""
        return self._most.waiting, self._most_each.waiting

    @property
    def input_bytes(self) -> int:
        """How much memory the content of its requests takes."""
        return self._all.input_bytes

    @property
    def tenants(self) -> int:
        """How many tenants have requests here."""
        return len(self._each)

    def check(self, tenant: str, input_bytes: int, *, again: bool = False) -> None:
        """See whether a request with so many bytes of input finds room.

        Raises:
            MeshError: If it does not; then nothing is parked.
        """
        largest = min(self._most.input_bytes, self._most_each.input_bytes)
        if input_bytes > largest:
            raise MeshError(
                error_for("body_too_large", f"The input may have at most {largest} bytes.")
            )
        times = _AGAIN if again else 1
        own = self._each.get(tenant, _Tally())
        bounds = ((self._all, self._most), (own, self._most_each))
        may_run = all(there.running < times * most.running for there, most in bounds)
        fits_all, fits_own = (
            (may_run or there.waiting < times * most.waiting)
            and there.idle < times * (most.running + most.waiting)
            and there.input_bytes + input_bytes <= times * most.input_bytes
            for there, most in bounds
        )
        if not (fits_all and fits_own):
            whose = "" if fits_own else " of this tenant"
            raise MeshError(
                error_for(
                    "queue_full",
                    f"As many requests{whose} for {self._name} wait as may wait.",
                    retry_after_s=self._retry_after_s,
                )
            )

    def enter(self, request: OpenRequest) -> None:
        """Take a request in that was checked; it waits until `next_admitted` gives it."""
        for tally in (self._all, self._each.setdefault(request.tenant, _Tally())):
            tally.input_bytes += request.input_bytes
            tally.requests += 1
            tally.again += request.work_epoch > 1
        self.wait_again(request)

    def next_admitted(self) -> OpenRequest | None:
        """Take the next request that may run now."""
        request = (
            self._next_of(self._turns, 1)
            or self._next_of(self._again, _AGAIN)
            or self._next_of(self._new, 1)
        )
        if request is not None:
            self._running.add(request.number)
            for tally in (self._all, self._each[request.tenant]):
                tally.waiting -= 1
                tally.running += 1
        return request

    def set_apart(self, request: OpenRequest) -> None:
        """Let a request wait no longer that will not run."""
        if any(queue.remove(request.number) for queue in self._queues):
            for tally in (self._all, self._each[request.tenant]):
                tally.waiting -= 1

    def wait_again(self, request: OpenRequest) -> None:
        """Let a request that was set apart wait again, after those that wait already."""
        self._push(self._again if request.work_epoch > 1 else self._new, request)

    def park(self, request: OpenRequest) -> None:
        """Take the running slot of a conversation that waits for its client; it keeps its place."""
        self._running.discard(request.number)
        self._idle.add(request.number)
        for tally in (self._all, self._each[request.tenant]):
            tally.running -= 1
            tally.idle += 1
        self._let(request.tenant)

    def rejoin(self, request: OpenRequest) -> None:
        """Let a conversation wait for a running slot again; `next_admitted` gives it."""
        self._idle.discard(request.number)
        for tally in (self._all, self._each[request.tenant]):
            tally.idle -= 1
        self._push(self._turns, request)

    def resize(self, request: OpenRequest, input_bytes: int) -> bool:
        """Note how much input of a request is kept now; False if more is than may be."""
        own = self._each[request.tenant]
        for tally in (self._all, own):
            tally.input_bytes += input_bytes - request.input_bytes
        request.input_bytes = input_bytes
        return all(
            there.input_bytes <= (_AGAIN if there.again else 1) * most.input_bytes
            for there, most in ((self._all, self._most), (own, self._most_each))
        )

    def leave(self, request: OpenRequest) -> None:
        """Give up the place of a request that is done, wherever it was."""
        self.set_apart(request)
        own = self._each[request.tenant]
        for tally in (self._all, own):
            tally.input_bytes -= request.input_bytes
            tally.requests -= 1
            tally.again -= request.work_epoch > 1
            tally.running -= request.number in self._running
            tally.idle -= request.number in self._idle
        self._running.discard(request.number)
        self._idle.discard(request.number)
        if not own.requests:
            del self._each[request.tenant]
        self._let(request.tenant)

    def all_waiting(self) -> list[OpenRequest]:
        """Give the requests that wait, those that another owner had first, oldest first."""
        return [*self._again.items(), *self._new.items()]

    @property
    def _queues(self) -> tuple[FairQueue[OpenRequest], ...]:
        return (self._turns, self._again, self._new)

    def _let(self, tenant: str) -> None:
        """Look again whether a tenant may go whose turn came while it might not."""
        for queue in self._queues:
            queue.let(tenant)

    def _push(self, queue: FairQueue[OpenRequest], request: OpenRequest) -> None:
        for tally in (self._all, self._each[request.tenant]):
            tally.waiting += 1
        queue.push(
            request.tenant,
            priority=request.priority,
            number=request.number,
            cost=request.plan.choices,
            item=request,
        )

    def _next_of(self, queue: FairQueue[OpenRequest], times: int) -> OpenRequest | None:
        if self._all.running >= times * self._most.running:
            return None
        most = times * self._most_each.running
        return queue.pop(lambda tenant: self._each[tenant].running < most)


def _shared(limits: Limits, orchestrators: int) -> tuple[_Tally, _Tally]:
    """Give one orchestrator's share of the limits: for all tenants, and for each."""

    def share(whole: int) -> int:
        return math.ceil(whole / orchestrators)

    def each(own: int | None, whole: int) -> int:
        return share(whole if own is None else min(own, whole))

    return (
        _Tally(share(limits.running_max), share(limits.waiting_max), share(limits.input_bytes_max)),
        _Tally(
            each(limits.tenant_running_max, limits.running_max),
            each(limits.tenant_waiting_max, limits.waiting_max),
            each(limits.tenant_input_bytes_max, limits.input_bytes_max),
        ),
    )
