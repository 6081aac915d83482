"""Requests that end unheard."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Journal
from tests.helpers.core_stage import CoreStage, make_request, of_kind

TOKENS = ResumeContract.TOKENS


def running(*, orchestrators: int = 1) -> tuple[CoreStage, int]:
    stage = CoreStage(CoreSettings(orchestrators=orchestrators), mirrors=True)
    thinker, _ = stage.replica("thinker", TOKENS)
    stage.open(make_request("echo"))
    return stage, thinker


def nothing_is_left(stage: CoreStage) -> bool:
    kept = stage.core.footprint()
    return not any(kept[what] for what in ("requests", "running", "waiting", "attempts"))


def test_an_orphan_is_over_after_a_while_and_its_slot_is_the_workers() -> None:
    stage, thinker = running()
    assert not of_kind(stage.do(ev.ClientLost(link=1)), fx.AbortAttempt)
    assert len(of_kind(stage.wait(2.0), fx.AbortAttempt)) == 1
    assert nothing_is_left(stage)
    assert stage.core.replica_views()[0].in_flight == 1
    stage.do(ev.AttemptUnknown(link=thinker, slot=1))
    assert stage.core.replica_views()[0].in_flight == 0


def test_an_orphan_that_waits_gives_its_place_up_at_once() -> None:
    stage, _ = running()
    stage.open(make_request("echo"))
    stage.open(make_request("echo"))
    assert stage.core.footprint()["waiting"] == 1
    stage.do(ev.ClientLost(link=1))
    assert stage.core.footprint()["waiting"] == 0
    stage.wait(2.0)
    assert nothing_is_left(stage)


def test_an_orphan_that_waits_for_a_replica_gets_none() -> None:
    stage = CoreStage(mirrors=True)
    stage.open(make_request("echo"))
    stage.do(ev.ClientLost(link=1))
    assert not of_kind(stage.replica("thinker", TOKENS)[1], fx.SubmitAttempts)


@pytest.mark.invariant("ORCH-INV-100")
def test_an_orphan_starts_nothing_again_whose_replica_is_lost() -> None:
    stage, thinker = running()
    stage.replica("thinker", TOKENS)
    stage.rows(thinker, CoreStage.text(1, 0, "a"))
    stage.do(ev.ClientLost(link=1))
    assert not of_kind(stage.lose(thinker), fx.SubmitAttempts)


def test_a_request_that_waits_is_opened_again_without_a_word() -> None:
    stage, _ = running()
    stage.open(make_request("echo"))
    waits, _ = stage.open(make_request("echo"))
    assert stage.core.footprint()["waiting"] == 1
    stage.do(
        ev.Opened(
            link=1, slot=9, request_id=f"r{waits}", epoch=2, deadline_left_s=0.0,
            request=make_request("echo"), body=None, journal=Journal(),
        )
    )  # fmt: skip
    assert stage.core.footprint()["requests"] == 3


def test_an_orphan_ends_by_its_deadline_by_an_abort_and_by_a_drain() -> None:
    for event in (
        None,
        ev.RequestAbortAsked(request_id="r1", cause="asked"),
        ev.DrainAsked(drain_s=9),
    ):
        stage = CoreStage(mirrors=True)
        stage.replica("thinker", TOKENS)
        stage.open(make_request("echo"), deadline_s=1.0)
        stage.do(ev.ClientLost(link=1))
        effects = stage.wait(1.0) if event is None else stage.do(event)
        assert len(of_kind(effects, fx.AbortAttempt)) == 1
        assert nothing_is_left(stage)


def test_a_request_that_was_aborted_as_an_orphan_is_not_opened_again() -> None:
    stage, _ = running()
    stage.do(ev.ClientLost(link=1))
    stage.do(ev.RequestAbortAsked(request_id="r1", cause="asked"))
    stage.do(ev.ClientAttached(link=1, window_units=9, window_bytes=99, mirrors=True))
    stage._slots = 0
    (end,) = of_kind(stage.open(make_request("echo"), epoch=2)[1], fx.EndRequest)
    assert end.terminal.outcome.name == "CANCELLED"


def test_the_only_orchestrator_finishes_what_it_has() -> None:
    stage, thinker = running(orchestrators=1)
    assert not of_kind(stage.do(ev.DrainAsked(drain_s=9)), fx.HandBackRequest)
    row = CoreStage.text(1, 0, "a", end=True)
    (end,) = of_kind(stage.rows(thinker, row), fx.EndRequest)
    assert end.terminal.outcome.name == "COMPLETED"


def test_what_is_handed_back_is_neither_ended_nor_released() -> None:
    stage, _ = running(orchestrators=2)
    effects = stage.do(ev.DrainAsked(drain_s=9))
    assert [back.slot for back in of_kind(effects, fx.HandBackRequest)] == [1]
    assert not of_kind(effects, fx.EndRequest)
    assert not of_kind(effects, fx.ReleaseHandles)
    assert nothing_is_left(stage)


@pytest.mark.invariant("ORCH-INV-208")
def test_what_is_handed_back_leaves_no_attempt_running() -> None:
    stage, thinker = running(orchestrators=2)
    effects = stage.do(ev.DrainAsked(drain_s=9))
    # Nobody may open it again: an attempt that waits for its next input would wait for ever.
    assert [(abort.link, abort.slot) for abort in of_kind(effects, fx.AbortAttempt)] == [
        (thinker, 1)
    ]


@pytest.mark.invariant("ORCH-INV-206")
def test_a_request_that_is_ending_anyway_is_not_handed_back() -> None:
    stage, _ = running(orchestrators=2)
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    assert not of_kind(stage.do(ev.DrainAsked(drain_s=9)), fx.HandBackRequest)
    assert len(of_kind(stage.wait(1.0), fx.EndRequest)) == 1


def test_a_caller_of_this_process_keeps_its_request_while_it_drains() -> None:
    stage = CoreStage(CoreSettings(orchestrators=2))
    stage.replica("thinker", TOKENS)
    stage.open(make_request("echo"))
    assert not of_kind(stage.do(ev.DrainAsked(drain_s=9)), fx.HandBackRequest)
    assert stage.core.requests_open == 1
