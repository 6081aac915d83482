"""Requests that need a pool which an operator has closed: held, or refused, and nobody else.

While a pool is paused with the mode keep or wait, new requests for it are held, as many as may
wait, and at most for their time. Where it sleeps, or was paused to abort what runs, they are
refused. What another owner had is always held: it was taken once.
"""

import msgspec

from services.orchestrator.core.ending import admit
from services.orchestrator.core.plan import Plan
from services.orchestrator.core.replicas import ReplicaPool, WorkerState
from services.orchestrator.core.request import OpenRequest, Standing
from services.orchestrator.core.state import State
from stagemesh.control import PauseMode
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["Closed", "check", "closed", "hold", "look"]

_KEEPING = frozenset({PauseMode.KEEP, PauseMode.WAIT})


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pool takes nothing; `holds` if new requests wait for it to be opened."""

    reason: str
    holds: bool


def closed(pool: ReplicaPool) -> Closed | None:
    """Say whether operators have closed a pool; a replica that takes work keeps it open."""
    if not pool.closed:
        return None
    held = [replica for replica in pool.replicas if replica.held]
    modes = {replica.gate.paused for replica in held} | {pool.will.paused}
    if pool.will.asleep or any(replica.state is WorkerState.ASLEEP for replica in held):
        return Closed(reason="asleep", holds=False)
    return Closed(reason="paused", holds=bool(modes & _KEEPING) and PauseMode.ABORT not in modes)


def check(state: State, plan: Plan, tenant: str, *, again: bool) -> None:
    """See whether a request may be taken with its pools as they are; `again` if it had an owner.

    Raises:
        MeshError: With `PAUSED` or `ASLEEP`, or with `OVERLOADED` if as many are held as may wait.
    """
    for group in plan.groups:
        found = closed(state.pools[group.stage.pool])
        if found is None:
            continue
        if not (found.holds or again):
            raise MeshError(_refusal(state, found, group.stage.name, group.stage.pool))
        most, most_each = state.admissions[plan.pipeline.name].waiting_most
        times = 2 if again else 1
        if len(state.held) < times * min(most, most_each):
            continue  # So that nobody is counted while few are held.
        held = [request for request in state.held if request.plan.pipeline is plan.pipeline]
        own = sum(request.tenant == tenant for request in held)
        if len(held) >= times * most or own >= times * most_each:
            error = error_for(
                "queue_full",
                f"As many requests wait for pool {group.stage.pool} as may wait.",
                pool=group.stage.pool,
                retry_after_s=state.settings.retry_after_s,
            )
            raise MeshError(error)


def hold(state: State, request: OpenRequest) -> None:
    """Let a request that waits to be admitted wait for its pools first, if one is closed."""
    if _waits(state, request):
        state.admissions[request.plan.pipeline.name].set_apart(request)
        state.held[request] = None


def look(state: State) -> None:
    """Let those go on that are held and whose pools are open again, oldest first."""
    for request in [request for request in state.held if not _waits(state, request)]:
        del state.held[request]
        admission = state.admissions[request.plan.pipeline.name]
        admission.wait_again(request)
        admit(state, admission)


def _waits(state: State, request: OpenRequest) -> bool:
    """Whether a pool is closed that it needs; what another owner has finished needs none."""
    return any(
        state.pools[group.stage.pool].closed
        for group in request.groups
        if group.standing is not Standing.OVER
    )


def _refusal(state: State, found: Closed, stage: str, pool: str) -> ErrorInfo:
    what = "is asleep" if found.reason == "asleep" else "was paused by an operator"
    return error_for(
        found.reason,
        f"Pool {pool}, which is needed, {what}.",
        stage=stage,
        pool=pool,
        retry_after_s=state.settings.retry_after_s,
    )
