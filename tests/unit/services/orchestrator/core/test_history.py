"""The entries of a request."""

import pytest

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.history import ENTRIES_MAX, Entry, History, Kind
from services.orchestrator.core.views import RequestView
from stagemesh.outcome import End, FinishReason, Outcome, Terminal, Timings, error_for
from tests.helpers.core_stage import CoreStage, make_request


def view_of(stage: CoreStage, request_id: str) -> RequestView:
    view = stage.core.request_view(request_id)
    assert view is not None
    return view


def kinds(stage: CoreStage, request_id: str) -> list[Kind]:
    return [entry.kind for entry in view_of(stage, request_id).entries]


@pytest.mark.invariant("ORCH-INV-120")
def test_the_first_and_the_last_entries_are_kept() -> None:
    history = History()
    for at in range(1000):
        history.add(Entry(at_s=float(at), kind=Kind.PENDING))
    times = [entry.at_s for entry in history.entries]
    assert len(times) == ENTRIES_MAX
    assert times[:2] == [0.0, 1.0]
    assert times[-1] == 999.0
    assert times == sorted(times)
    assert history.dropped == 1000 - ENTRIES_MAX


def test_nothing_is_dropped_while_there_is_room() -> None:
    history = History()
    history.add(Entry(at_s=0.0, kind=Kind.OPENED))
    assert (len(history.entries), history.dropped) == (1, 0)


def test_a_request_tells_from_its_opening_to_its_end_where_the_time_went() -> None:
    stage = CoreStage()
    stage.open(make_request("echo"))
    stage.now_s = 1.0
    thinker, _ = stage.replica("thinker")
    stage.now_s = 3.0
    row = CoreStage.text(1, 0, "a")
    row.end = End(finish_reason=FinishReason.STOP, timings=Timings(queue_s=0.5, compute_s=1.25))
    stage.rows(thinker, row)

    entries = view_of(stage, "r1").entries
    assert [(entry.kind, entry.at_s, entry.seconds) for entry in entries] == [
        (Kind.OPENED, 0.0, 0.0),
        (Kind.ADMITTED, 0.0, 0.0),
        (Kind.PENDING, 0.0, 0.0),
        (Kind.SUBMITTED, 1.0, 1.0),
        (Kind.STREAMING, 3.0, 2.0),
        (Kind.FIRST_OUTPUT, 3.0, 3.0),
        (Kind.ATTEMPT_ENDED, 3.0, 2.0),
        (Kind.DONE, 3.0, 0.0),
    ]
    ended = entries[-2]
    assert (ended.stage, ended.attempt, ended.replica_id, ended.incarnation, ended.state) == (
        "thinker",
        1,
        f"thinker-{thinker}",
        thinker,
        "FINISHED",
    )
    assert ended.timings == Timings(queue_s=0.5, compute_s=1.25)
    assert entries[-1].state == "COMPLETED"


@pytest.mark.invariant("ORCH-INV-120")
def test_outputs_make_no_entries() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.rows(thinker, CoreStage.text(1, 0, "a"))
    before = kinds(stage, "r1")
    stage.rows(thinker, *(CoreStage.text(1, pos, "a") for pos in range(1, 50)))
    assert kinds(stage, "r1") == before


def test_a_loss_is_told_with_its_cause_and_so_is_what_follows() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", ResumeContract.RESTART)
    stage.open(make_request("echo"))
    stage.replica("thinker", ResumeContract.RESTART)
    stage.lose(first)

    entries = view_of(stage, "r1").entries
    ended, redriven, again = entries[-3:]
    assert (ended.kind, ended.state, ended.replica_id) == (
        Kind.ATTEMPT_ENDED,
        "LOST",
        f"thinker-{first}",
    )
    assert redriven.kind is Kind.REDRIVEN
    assert redriven.cause == ended.cause != ""
    assert (again.kind, again.attempt) == (Kind.SUBMITTED, 2)


def test_a_refusal_is_told_with_its_cause() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.replica("thinker")
    stage.open(make_request("echo"))
    no = Terminal(outcome=Outcome.REJECTED, error=error_for("no_slot"))
    stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=no))

    entries = view_of(stage, "r1").entries
    refused = next(entry for entry in entries if entry.kind is Kind.ATTEMPT_ENDED)
    assert (refused.state, refused.cause) == ("REFUSED", error_for("no_slot").message)
    assert [entry.attempt for entry in entries if entry.kind is Kind.SUBMITTED] == [1, 2]


def test_an_orphan_says_so() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.do(ev.ClientLost(link=1))
    assert kinds(stage, "r1")[-1] is Kind.ORPHANED
    stage.wait(2.0)
    done = view_of(stage, "r1").entries[-1]
    assert (done.kind, done.state) == (Kind.DONE, "CANCELLED")


def test_what_is_turned_away_says_why() -> None:
    stage = CoreStage()
    stage.open(make_request("nothing"))
    opened, done = view_of(stage, "r1").entries
    assert (opened.kind, done.kind, done.state) == (Kind.OPENED, Kind.DONE, "REJECTED")
    assert "nothing" in done.cause


def test_a_stage_that_does_not_confirm_is_named() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    assert view_of(stage, "r1").unconfirmed == ("thinker",)
    stage.wait(1.0)
    view = view_of(stage, "r1")
    assert view.terminal is not None
    assert view.unconfirmed == ("thinker",)


def test_a_stage_that_confirms_is_not_named() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    stage.do(ev.AttemptUnknown(link=thinker, slot=1))
    view = view_of(stage, "r1")
    assert view.terminal is not None
    assert view.unconfirmed == ()
