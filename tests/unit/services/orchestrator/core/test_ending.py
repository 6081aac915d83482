"""Ends."""

import gc
from collections.abc import Iterator

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.request import Attempt, Group, OpenRequest
from stagemesh.link.core import Row
from stagemesh.outcome import End, FinishReason, Outcome, Terminal, Timings, Usage
from tests.helpers.core_stage import CoreStage, make_request, of_kind


def end_of(effects: list[fx.Effect]) -> Terminal:
    (end,) = of_kind(effects, fx.EndRequest)
    return end.terminal


def with_usage(slot: int, usage: Usage, *, role: int = 0, stage: int = 0) -> Row:
    row = CoreStage.text(slot, 0, "a", role=role, stage=stage)
    timings = Timings(compute_s=0.5)
    row.end = End(finish_reason=FinishReason.STOP, usage=usage, timings=timings)
    return row


def test_a_prompt_counts_once_over_choices_and_stages() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("twice"))
    stage.rows(thinker, with_usage(1, Usage(prompt_tokens=7, cached_tokens=3)))
    effects = stage.rows(thinker, with_usage(2, Usage(prompt_tokens=99), stage=1))
    usage = end_of(effects).usage
    assert (usage.prompt_tokens, usage.cached_tokens) == (7, 3)
    assert usage.completion_tokens == 1, "the first stage was not shown to the client"


def test_what_was_heard_counts_beside_the_prompt() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("twice"))
    stage.rows(thinker, with_usage(1, Usage(audio_input_samples=160)))
    effects = stage.rows(thinker, with_usage(2, Usage(prompt_tokens=5), stage=1))
    usage = end_of(effects).usage
    assert (usage.audio_input_samples, usage.prompt_tokens) == (160, 5)


def test_a_terminal_says_where_the_time_went() -> None:
    stage = CoreStage()
    stage.open(make_request("echo"))
    stage.open(make_request("echo"))
    stage.open(make_request("echo"))  # It waits for admission: two may run.
    stage.now_s = 1.0
    thinker, _ = stage.replica("thinker")
    stage.now_s = 2.0
    stage.rows(thinker, CoreStage.text(1, 0, "a", end=True))
    stage.now_s = 3.0
    stage.rows(thinker, CoreStage.text(3, 0, "a"))
    stage.now_s = 4.5
    row = CoreStage.text(3, 1, "b")
    row.end = End(finish_reason=FinishReason.STOP, timings=Timings(compute_s=0.75))
    timings = end_of(stage.rows(thinker, row)).timings
    assert timings == Timings(queue_s=2.0, first_output_s=3.0, compute_s=0.75, total_s=4.5)


def test_the_usage_of_an_aborted_attempt_comes_with_its_answer() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    last = Terminal(outcome=Outcome.CANCELLED, usage=Usage(prompt_tokens=4))
    terminal = end_of(stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=last)))
    assert terminal.usage.prompt_tokens == 4
    assert terminal.usage.complete


def test_outputs_that_were_held_back_do_not_count() -> None:
    stage = CoreStage(units=1)
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.rows(thinker, *(CoreStage.text(1, pos, "a") for pos in range(5)))
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    terminal = end_of(stage.do(ev.AttemptUnknown(link=thinker, slot=1)))
    assert terminal.usage.completion_tokens == 1


@pytest.mark.invariant("ORCH-INV-202")
def test_one_abort_reaches_each_attempt_once() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo", choices=3))
    first = of_kind(stage.do(ev.AbortAsked(link=1, slot=1, cause="asked")), fx.AbortAttempt)
    assert [(abort.link, abort.slot) for abort in first] == [
        (thinker, 1),
        (thinker, 2),
        (thinker, 3),
    ]
    again = stage.do(ev.RequestAbortAsked(request_id="r1", cause="asked"))
    assert not of_kind(again, fx.AbortAttempt)
    assert not of_kind(stage.do(ev.ClientLost(link=1)), fx.AbortAttempt)


@pytest.mark.invariant("ORCH-INV-102", "ORCH-INV-203")
def test_an_attempt_whose_abort_nobody_answers_ends_with_its_request_and_keeps_its_slot() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    assert stage.core.footprint()["attempts"] == 1
    assert end_of(stage.wait(1.0)).outcome is Outcome.CANCELLED
    assert stage.core.footprint()["attempts"] == 0
    assert stage.core.replica_views()[0].in_flight == 1


def test_a_place_that_comes_free_is_taken_in_the_same_step() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    for _ in range(3):
        stage.open(make_request("echo"))
    effects = stage.rows(thinker, CoreStage.text(1, 0, "a", end=True))
    assert [submit.request_id for submit in of_kind(effects, fx.SubmitAttempts)] == ["r3"]


def parts_of_requests() -> int:
    """How many objects are there that an open request is made of."""
    kinds = (OpenRequest, Group, Attempt, Lane)
    return sum(isinstance(one, kinds) for one in gc.get_objects())


@pytest.fixture
def no_collector() -> Iterator[None]:
    """The garbage collector runs when a test says so only."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("how", ["completed", "aborted", "client lost"])
@pytest.mark.usefixtures("no_collector")
def test_a_request_that_is_over_leaves_the_garbage_collector_nothing(how: str) -> None:
    before = parts_of_requests()
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("twice"))
    stage.rows(thinker, CoreStage.text(1, 0, "a", end=True))
    assert parts_of_requests() > before
    if how == "completed":
        stage.rows(thinker, CoreStage.text(2, 0, "b", stage=1, end=True))
    elif how == "aborted":
        stage.do(ev.AbortAsked(link=CoreStage.CLIENT, slot=1, cause="gone"))
        stage.wait(5.0)
    else:
        stage.do(ev.ClientLost(link=CoreStage.CLIENT))
    assert stage.core.requests_open == 0
    assert parts_of_requests() == before


@pytest.mark.usefixtures("no_collector")
def test_a_conversation_that_is_over_leaves_the_garbage_collector_nothing() -> None:
    before = parts_of_requests()
    stage = CoreStage()
    stage.replica("listener")
    stage.replica("mixer")
    slot, _ = stage.converse(make_request("turns"))
    stage.append(slot, "a", segment_end=True)
    assert parts_of_requests() > before
    stage.do(ev.AbortAsked(link=CoreStage.CLIENT, slot=slot, cause="gone"))
    stage.wait(5.0)
    assert stage.core.requests_open == 0
    assert parts_of_requests() == before
