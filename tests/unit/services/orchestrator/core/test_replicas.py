"""Replicas and pools."""

import pytest

from services.orchestrator.core.budget import RetryBudget
from services.orchestrator.core.replicas import (
    LoadReport,
    Replica,
    ReplicaPool,
    WorkerCard,
    WorkerState,
)


def replica(pool: ReplicaPool, link: int, *, slots: int = 2, context: int = 0) -> Replica:
    made = Replica(
        link=link,
        pool=pool,
        replica_id=f"r{link}",
        incarnation=1,
        card=WorkerCard(slots=slots, context_tokens_max=context),
        state=WorkerState.READY,
        window_units=1,
        window_bytes=1,
    )
    pool.replicas.append(made)
    return made


@pytest.mark.parametrize("field", ["superseded", "stalled", "lost"])
def test_whatever_is_wrong_with_it_makes_a_replica_unusable(field: str) -> None:
    pool = ReplicaPool("p", RetryBudget(share=0.2, burst=50, refill_s=10))
    made = replica(pool, 1)
    before = (made.usable, pool.ready)
    setattr(made, field, True)
    assert before == (True, True)
    assert (made.usable, pool.ready) == (False, False)


@pytest.mark.parametrize("state", [s for s in WorkerState if s is not WorkerState.READY])
def test_only_a_ready_replica_is_usable(state: WorkerState) -> None:
    made = replica(ReplicaPool("p", RetryBudget(share=0.2, burst=50, refill_s=10)), 1)
    made.state = state
    assert not made.usable


def test_an_unlisted_replica_is_not_usable() -> None:
    made = replica(ReplicaPool("p", RetryBudget(share=0.2, burst=50, refill_s=10)), 1)
    made.listed = False
    assert not made.usable


@pytest.mark.invariant("ORCH-INV-203")
def test_slots_are_held_by_leftovers_too() -> None:
    made = replica(ReplicaPool("p", RetryBudget(share=0.2, burst=50, refill_s=10)), 1, slots=2)
    assert made.free == 2
    made.leftovers[7] = {1}
    assert (made.free, made.in_flight) == (1, 1)


def test_what_is_not_ours_counts_as_load_but_takes_no_slot() -> None:
    made = replica(ReplicaPool("p", RetryBudget(share=0.2, burst=50, refill_s=10)), 1, slots=4)
    made.leftovers[7] = {1}
    made.reported(LoadReport(running=2, waiting=1))
    assert made.busy == 3
    assert made.free == 3
    made.reported(LoadReport(running=0))
    assert made.busy == 1


def test_a_pool_tells_the_smallest_context_of_its_usable_replicas() -> None:
    pool = ReplicaPool("p", RetryBudget(share=0.2, burst=50, refill_s=10))
    assert pool.context_tokens == 0
    replica(pool, 1, context=4096)
    small = replica(pool, 2, context=2048)
    replica(pool, 3)
    assert pool.context_tokens == 2048
    small.listed = False
    assert pool.context_tokens == 4096
