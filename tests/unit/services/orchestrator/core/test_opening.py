"""Clients and their requests."""

from math import inf, nan

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.core_stage import CoreStage, make_request, of_kind


@pytest.mark.parametrize("asked_s", [0.0, inf, nan])
def test_without_a_deadline_the_pipelines_own_counts(asked_s: float) -> None:
    stage = CoreStage()
    stage.replica("thinker")
    _, effects = stage.open(make_request("echo"), deadline_s=asked_s)
    assert of_kind(effects, fx.SubmitAttempts)[0].deadline_left_s == 60.0


def test_a_request_that_is_turned_away_leaves_nothing_but_its_view() -> None:
    stage = CoreStage()
    slot, effects = stage.open(make_request("nothing"))
    (end,) = of_kind(effects, fx.EndRequest)
    assert end.terminal.outcome is Outcome.REJECTED
    assert not any(stage.core.footprint().values())
    view = stage.core.request_view(f"r{slot}")
    assert view is not None
    assert view.terminal == end.terminal


def test_a_view_follows_a_request_to_its_end() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo", choices=2))
    stage.wait(2.0)
    view = stage.core.request_view("r1")
    assert view is not None
    assert (view.state, view.model, view.age_s, view.terminal) == ("RUNNING", "echo", 2.0, None)
    assert [(a.role, a.state, a.replica_id) for a in view.attempts] == [
        (0, "SUBMITTED", f"thinker-{thinker}"), (1, "SUBMITTED", f"thinker-{thinker}"),
    ]  # fmt: skip
    for role in range(2):
        stage.rows(thinker, CoreStage.text(role + 1, 0, "a", role=role, end=True))
    view = stage.core.request_view("r1")
    assert view is not None
    assert view.state == "DONE"
    assert view.terminal is not None
    assert view.terminal.outcome is Outcome.COMPLETED
    assert {attempt.state for attempt in view.attempts} == {"FINISHED"}


def test_only_the_last_requests_can_be_looked_up() -> None:
    stage = CoreStage(CoreSettings(recent_max=2))
    for _ in range(3):
        stage.open(make_request("nothing"))
    assert stage.core.request_view("r1") is None
    assert stage.core.request_view("r3") is not None


def test_a_request_without_a_replica_waits_and_shows_it() -> None:
    stage = CoreStage()
    stage.open(make_request("echo"))
    view = stage.core.request_view("r1")
    assert view is not None
    assert [(a.state, a.number, a.replica_id) for a in view.attempts] == [("PENDING", 0, "")]


def test_a_slot_that_is_taken_is_not_taken_again() -> None:
    stage = CoreStage()
    stage.open(make_request("echo"))
    again = ev.Opened(
        link=CoreStage.CLIENT,
        slot=1,
        request_id="other",
        epoch=1,
        deadline_left_s=1.0,
        request=make_request("echo"),
        body=None,
    )
    assert stage.do(again) == []
    assert stage.core.counts.opens_ignored == 1
    assert stage.core.request_view("other") is None


def test_the_second_drain_may_be_shorter() -> None:
    stage = CoreStage()
    stage.open(make_request("echo"))
    stage.do(ev.DrainAsked(drain_s=100.0))
    stage.do(ev.DrainAsked(drain_s=1.0))
    (end,) = of_kind(stage.wait(1.0), fx.EndRequest)
    assert end.terminal.error is not None
    assert end.terminal.error.code is ErrorCode.DRAINING


def test_whoever_waits_longest_for_credit_is_not_slow_if_it_takes_a_little() -> None:
    stage = CoreStage(CoreSettings(slow_s=30.0, stall_s=1000.0), units=1)
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"), deadline_s=1000.0)
    for pos in range(10):
        stage.rows(thinker, CoreStage.text(1, pos, "a"))
    for taken in range(1, 9):
        stage.wait(20.0)
        grant = ev.CreditGranted(link=1, grants=[Grant(1, 0, 1 + taken, 1 << 20)])
        assert len(of_kind(stage.do(grant), fx.SendRows)) == 1
    assert not of_kind(stage.wait(29.9), fx.AbortAttempt)
    assert len(of_kind(stage.wait(0.1), fx.AbortAttempt)) == 1
