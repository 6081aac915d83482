import signal

import pytest

from stagemesh.cli.supervision import (
    Child,
    ChildState,
    Role,
    StopOrders,
    SupervisionPolicy,
    is_clean_exit,
    is_up,
    stop_orders,
)

GATEWAY, ORCHESTRATOR, WORKER = Role.GATEWAY, Role.ORCHESTRATOR, Role.STAGE_WORKER
ALL = {GATEWAY, ORCHESTRATOR, WORKER}


@pytest.fixture
def child() -> Child:
    return Child(SupervisionPolicy())


def state_of(child: Child) -> ChildState:
    """Give the state, which a type checker would take to be what it was a line before."""
    return child.state


def test_a_process_is_ready_when_it_says_so(child: Child) -> None:
    assert state_of(child) is ChildState.STARTING
    child.started(7)
    assert (child.pid, child.state) == (7, ChildState.STARTING)
    child.probed(False, 1.0)
    assert state_of(child) is ChildState.STARTING
    child.probed(True, 2.0)
    assert state_of(child) is ChildState.READY
    assert child.was_ready


def test_a_process_that_stops_being_ready_is_starting_again(child: Child) -> None:
    child.started(7)
    child.probed(True, 2.0)
    child.probed(False, 3.0)
    assert state_of(child) is ChildState.STARTING


def test_fast_deaths_wait_longer_each_time_and_half_a_minute_at_most(child: Child) -> None:
    delays = []
    for pid in range(1, 9):
        child.started(pid)
        delays.append(child.died(float(pid)))
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_five_fast_deaths_are_a_crash_loop(child: Child) -> None:
    for pid in range(1, 5):
        child.started(pid)
        child.died(0.0)
        assert (child.state, child.pid) == (ChildState.RESTARTING, 0)
    child.started(5)
    child.died(0.0)
    assert state_of(child) is ChildState.CRASH_LOOP


def test_a_crash_loop_is_one_until_the_process_is_ready(child: Child) -> None:
    for pid in range(1, 6):
        child.started(pid)
        child.died(0.0)
    child.started(6)
    assert state_of(child) is ChildState.CRASH_LOOP
    child.probed(False, 1.0)
    assert state_of(child) is ChildState.CRASH_LOOP
    child.probed(True, 2.0)
    assert state_of(child) is ChildState.READY


def test_dying_soon_after_being_ready_is_a_fast_death(child: Child) -> None:
    for at in range(5):
        child.started(1)
        child.probed(True, 100.0 * at)
        child.died(100.0 * at + 9.9)
    assert state_of(child) is ChildState.CRASH_LOOP


def test_a_process_that_had_settled_starts_with_a_clean_slate(child: Child) -> None:
    for pid in range(1, 5):
        child.started(pid)
        child.died(0.0)
    child.started(5)
    child.probed(True, 100.0)
    assert child.died(110.0) == 1.0
    assert state_of(child) is ChildState.RESTARTING
    child.started(6)
    assert not child.was_ready
    assert child.died(111.0) == 1.0


def test_the_back_off_stays_bounded_for_ever(child: Child) -> None:
    for _ in range(3000):
        child.started(1)
        assert child.died(0.0) <= 30.0


def test_a_process_that_was_told_to_go_is_stopping_whatever_it_says(child: Child) -> None:
    child.started(1)
    child.stopping()
    child.probed(True, 1.0)
    assert state_of(child) is ChildState.STOPPING
    child.stopped()
    assert (child.state, child.pid) == (ChildState.STOPPED, 0)


READY, STARTING = ChildState.READY, ChildState.STARTING


@pytest.mark.parametrize(
    ("workers", "others", "up"),
    [
        ([("a", READY), ("b", READY)], [READY, READY], True),
        ([("a", READY), ("a", ChildState.CRASH_LOOP), ("b", READY)], [READY, READY], True),
        ([("a", READY), ("b", STARTING)], [READY, READY], False),
        ([("a", STARTING), ("a", READY)], [READY, READY], True),
        ([("a", READY)], [STARTING, READY], False),
        ([("a", READY)], [READY, STARTING], False),
    ],
)
def test_a_mesh_is_up_with_one_replica_of_each_pool_and_all_else(
    workers: list[tuple[str, ChildState]], others: list[ChildState], up: bool
) -> None:
    processes = [(WORKER, pool, state) for pool, state in workers]
    processes += [(GATEWAY, "", others[0]), (ORCHESTRATOR, "", others[1])]
    assert is_up(processes) is up


@pytest.mark.parametrize(
    ("code", "was_ready", "clean"),
    [
        (0, True, True),
        (0, False, True),
        (1, True, False),
        (-signal.SIGTERM, False, True),
        (-signal.SIGTERM, True, False),
        (-signal.SIGKILL, False, False),
    ],
)
def test_only_a_process_that_was_loading_may_die_of_the_signal(
    code: int, was_ready: bool, clean: bool
) -> None:
    assert is_clean_exit(code, was_ready=was_ready) is clean


@pytest.mark.parametrize(
    ("elapsed_s", "alive", "told", "expected"),
    [
        (0.0, ALL, set(), StopOrders((GATEWAY,), False, 4.0)),
        (1.0, ALL, {GATEWAY}, StopOrders((), False, 4.0)),
        (1.0, {ORCHESTRATOR, WORKER}, {GATEWAY}, StopOrders((ORCHESTRATOR,), False, 9.0)),
        (4.0, ALL, {GATEWAY}, StopOrders((ORCHESTRATOR,), False, 9.0)),
        (2.0, {WORKER}, {GATEWAY, ORCHESTRATOR}, StopOrders((WORKER,), False, 14.0)),
        (5.0, {GATEWAY, WORKER}, {GATEWAY, ORCHESTRATOR}, StopOrders((), False, 9.0)),
        (9.0, ALL, {GATEWAY, ORCHESTRATOR}, StopOrders((WORKER,), False, 14.0)),
        (13.9, ALL, ALL, StopOrders((), False, 14.0)),
        (14.0, ALL, ALL, StopOrders((), True, 14.0)),
        (0.0, {WORKER}, set(), StopOrders((GATEWAY, ORCHESTRATOR, WORKER), False, 14.0)),
    ],
)
def test_each_kind_goes_when_those_before_it_are_gone_or_it_is_time(
    elapsed_s: float, alive: set[Role], told: set[Role], expected: StopOrders
) -> None:
    assert stop_orders(elapsed_s, alive, told) == expected


def test_a_mesh_that_ignores_every_signal_is_killed_within_fifteen_seconds() -> None:
    now_s, told, order = 0.0, set[Role](), list[Role]()
    while not (orders := stop_orders(now_s, ALL, told)).kill:
        told |= set(orders.tell)
        order += orders.tell
        assert orders.next_s > now_s
        now_s = orders.next_s
    assert now_s < 15.0
    assert order == [GATEWAY, ORCHESTRATOR, WORKER]
