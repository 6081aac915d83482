"""Which faults excuse which ends, in a run of chaos."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.helpers.chaos_faults import Done, Kind
from tests.helpers.chaos_load import COMPLETE, GONE, LEFT, Ended

__all__ = ["POOLS", "unexplained"]

POOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "echo": ("thinker",),
    "talk": ("thinker", "talker"),
    "relay3": ("thinker", "coder", "talker"),
    "paint": ("encoder", "painter"),
}
"""The pools whose replicas a model needs."""

LINGERS_S: Final = 17.0
"""How long a fault can be felt after it is over: `peer_lost_s` until it is noticed, then
`redrive_s`, and a second."""

_OWNERS: Final = frozenset({"link_lost", "no_orchestrator"})
_REPLICAS: Final = frozenset({"replica_lost", "no_replica", "stalled", "handle_lost", "queue_full"})
_CRASHES: Final = frozenset({"engine_error"})


def unexplained(ended: Iterable[Ended], faults: Sequence[Done]) -> list[Ended]:
    """Give the requests whose end no fault explains that they could have felt."""
    return [one for one in ended if not _explained(one, faults)]


def _explained(one: Ended, faults: Sequence[Done]) -> bool:
    felt = [
        fault
        for fault in faults
        if fault.begun_s <= one.ended_s and one.begun_s <= fault.ended_s + LINGERS_S
    ]
    if one.how in (COMPLETE, LEFT):
        return True
    if one.how == GONE:
        # Nobody can be told anything by a process that is dead; one that stands still goes on.
        return any(fault.name == one.door and fault.kind is Kind.KILL for fault in felt)
    if one.how in _OWNERS:
        # A gateway that has just begun, or stood still, has no links for a moment.
        return any(f.name.startswith("orchestrator") or f.name == one.door for f in felt)
    of_its_pools = [fault for fault in felt if fault.name.rpartition("-")[0] in POOLS[one.model]]
    if one.how in _REPLICAS:
        return bool(of_its_pools)
    # Two replicas, lost at the same point of one request.
    return one.how in _CRASHES and len(of_its_pools) > 1
