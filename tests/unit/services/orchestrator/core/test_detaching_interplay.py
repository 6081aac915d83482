"""Detachable requests, and what else happens to them while no gateway is there, or after."""

import msgspec
import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import LoadReport, WorkerState
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import ErrorCode, Outcome, Terminal, error_for
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind
from tests.helpers.core_takeover import BYTES, DETACH_S, TEXT, UNITS, Detached, at, sent, terminals

FULL = Terminal(outcome=Outcome.REJECTED, error=error_for("no_slot"))
SLOW_S = 30.0
ACK_S = 2.0
"""An end waits for its workers' word."""


def handle_of(request_id: str) -> Handle:
    return Handle(
        handle_id="h", request_id=request_id, holder_id="thinker-2", incarnation=2, address="",
        size_bytes=9,
    )  # fmt: skip


def late(request_id: str) -> Row:
    return Row(99, TEXT, 0, 1, body=Body(handle=handle_of(request_id)))


@pytest.mark.parametrize("over", [True, False])
def test_bytes_that_come_too_late_are_released_under_the_epoch_that_workers_know(
    over: bool,
) -> None:
    stage = Detached()
    stage.take_over()
    if over:
        stage.rows(stage.links[0], stage.text(1, 0, "a", end=True))
        stage.confirm(2, 1, link=50)
    (release,) = of_kind(stage.rows(stage.links[0], late("r1")), fx.ReleaseHandles)
    assert release.epoch == 1


@pytest.mark.parametrize("rows", [1, UNITS + 5])
def test_a_gateway_that_takes_nothing_after_it_took_over_ends_it(rows: int) -> None:
    """Whether it owes credit or the word that it has all."""
    stage = Detached()
    stage.rows(stage.links[0], *(stage.text(1, pos, "a") for pos in range(rows - 1)))
    stage.rows(stage.links[0], stage.text(1, rows - 1, "a", end=True))
    stage.lose_gateway()
    stage.take_over()
    assert terminals(stage.wait(SLOW_S)) == [(50, Outcome.FAILED, ErrorCode.SLOW_CONSUMER)]


def test_a_client_is_not_slow_while_what_it_lost_is_made_again() -> None:
    stage = Detached("echo", "talker")
    thinker, _ = stage.replica("thinker", ResumeContract.REPLAY)
    row = Row(1, TEXT, 0, 1, body=Body(handle=handle_of("r1")), end=END)
    stage.rows(thinker, row)
    stage.wait(SLOW_S / 2)
    stage.do(ev.HandleLost(link=1, slot=7, handle_id="h"))
    busy = LoadReport(running=1, steps=1)
    stage.do(ev.ReplicaReported(link=thinker, state=WorkerState.READY, load=busy))
    assert not terminals(stage.wait(SLOW_S / 2 + 1) + stage.wait(ACK_S))


def test_what_becomes_an_orphan_during_a_drain_ends_with_it() -> None:
    stage = Detached()
    stage.do(ev.DrainAsked(drain_s=5.0))
    stage.lose_gateway()
    assert stage.core.requests_open == 1
    stage.wait(5.0)
    assert stage.core.requests_open == 0


def test_companions_have_their_time_anew_when_somebody_may_begin_them() -> None:
    stage = Detached("paint", "encoder", "painter")
    encoder, _ = stage.links
    tensor = Row(1, lane_of(0, 0, Modality.TENSOR), 0, 1, body=Body(inline=b"t"), end=END)
    stage.rows(encoder, tensor)
    stage.lose_gateway()
    stage.wait(DETACH_S - 1)
    stage.take_over()
    busy = LoadReport(running=1, steps=1)
    stage.do(ev.ReplicaReported(link=encoder, state=WorkerState.READY, load=busy))
    assert not terminals(stage.wait(12.0) + stage.wait(ACK_S)), "33 s after the choice ended"
    stage.do(ev.ReplicaReported(link=encoder, state=WorkerState.READY, load=busy))
    ended = terminals(stage.wait(18.0) + stage.wait(ACK_S))
    assert ended == [(50, Outcome.DEADLINE_EXCEEDED, ErrorCode.DEADLINE)]


def test_the_time_without_a_gateway_is_no_time_of_refusals() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=FULL))
    stage.lose_gateway()
    stage.wait(DETACH_S - 1)
    assert len(of_kind(stage.take_over(), fx.SubmitAttempts)) == 1
    assert not terminals(stage.do(ev.AttemptEnded(link=thinker, slot=2, terminal=FULL)))


def test_the_time_without_a_gateway_is_no_time_without_a_replica() -> None:
    stage = Detached()
    stage.lose(stage.links[0])  # And with it the request that it had.
    opened = ev.Opened(
        link=1, slot=8, request_id="r2", epoch=1, deadline_left_s=0.0, request=make_request(),
        body=None, detach_s=DETACH_S,
    )  # fmt: skip
    stage.do(opened)
    stage.lose_gateway()
    stage.wait(DETACH_S - 1)
    stage.do(ev.ClientAttached(link=50, window_units=UNITS, window_bytes=BYTES, mirrors=True))
    again = msgspec.structs.replace(opened, link=50, epoch=2, owner_since=1)
    assert not terminals(stage.do(again) + stage.wait(ACK_S))
    link, effects = stage.replica("thinker")
    assert [order.link for order in of_kind(effects, fx.SubmitAttempts)] == [link]


def test_what_nobody_can_read_yet_is_paid_for_when_the_next_gateway_is_there() -> None:
    stage = Detached("rejoin", "thinker", "coder", "mixer")
    thinker, *_ = stage.links
    stage.rows(thinker, stage.text(1, 0, "a"))
    stage.lose_gateway()
    more = [stage.text(1, pos, "a") for pos in range(1, 40)]
    assert not [one for one in of_kind(stage.rows(thinker, *more), fx.SendGrants)]
    grants = [one for one in of_kind(stage.take_over(), fx.SendGrants) if one.link == thinker]
    assert [grant.units for one in grants for grant in one.grants] == [104]


def test_a_gateway_without_a_journal_is_not_told_where_stages_are_given() -> None:
    stage = Detached("twice")
    stage.lose_gateway()
    stage.take_over()
    effects = stage.rows(stage.links[0], stage.text(1, 0, "a", end=True))
    assert of_kind(effects, fx.SubmitAttempts)
    assert not of_kind(effects, fx.PlaceNotice)


def test_a_gateway_may_give_it_up_on_a_link_that_lives() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, *(stage.text(1, pos, "a") for pos in range(UNITS + 1)))
    stage.do(ev.FenceRaised(link=1, slot=7, epoch=2**32 - 1, detach=True))
    assert not sent(stage.rows(thinker, stage.text(1, UNITS + 1, "b")), link=1)
    assert not stage.do(ev.CreditGranted(link=1, grants=[Grant(7, 0, 99, 99)]))
    effects = stage.take_over(at(TEXT, UNITS - 1))
    assert [pos for _, pos, _, _ in sent(effects)] == [UNITS - 1, UNITS, UNITS + 1]
    assert not of_kind(effects, fx.AnswerUnknown), "it knows"
    assert not stage.do(ev.FenceRaised(link=1, slot=7, epoch=2**32 - 1, detach=True))
    assert stage.core.requests_open == 1


def test_one_that_cannot_outlive_its_gateway_is_over_when_that_gives_it_up() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("thinker")
    stage.open(make_request())
    stage.do(ev.FenceRaised(link=1, slot=1, epoch=2**32 - 1, detach=True))
    assert stage.core.requests_open == 0


@pytest.mark.parametrize("detach_s", [-1.0, float("inf"), float("nan")])
def test_how_long_it_waits_is_a_number(detach_s: float) -> None:
    stage = CoreStage(mirrors=True)
    opened = ev.Opened(
        link=1, slot=1, request_id="r", epoch=1, deadline_left_s=0.0, request=make_request(),
        body=None, detach_s=detach_s,
    )  # fmt: skip
    (end,) = of_kind(stage.do(opened), fx.EndRequest)
    assert end.terminal.error is not None
    assert end.terminal.error.param == "detach_s"
