"""Detachable requests: their gateway is lost, and another one takes them over."""

import msgspec
import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from stagemesh.link.core import Grant, Row
from stagemesh.outcome import ErrorCode, Outcome, Terminal, error_for
from tests.helpers.core_stage import CoreStage, make_request, of_kind
from tests.helpers.core_takeover import (
    BYTES,
    DETACH_S,
    TEXT,
    TOMBSTONE_S,
    UNITS,
    Detached,
    at,
    sent,
    terminals,
)


@pytest.mark.invariant("ORCH-INV-210")
def test_another_gateway_gets_what_was_not_confirmed_and_what_came_meanwhile() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, *(stage.text(1, pos, f"w{pos}") for pos in range(3)))
    stage.confirm(1, 2)
    stage.lose_gateway()
    stage.rows(thinker, stage.text(1, 3, "w3"))
    effects = stage.take_over(at(TEXT, 2))
    assert sent(effects) == [(7, 2, "w2", False), (7, 3, "w3", False)]
    assert not of_kind(effects, fx.SubmitAttempts)
    assert not of_kind(effects, fx.AbortAttempt)


def test_its_work_goes_on_under_the_epoch_that_workers_know() -> None:
    stage = Detached("twice")
    (thinker,) = stage.links
    stage.lose_gateway()
    stage.take_over()
    effects = stage.rows(thinker, stage.text(1, 0, "a", end=True))
    assert [(order.stage, order.epoch) for order in of_kind(effects, fx.SubmitAttempts)] == [(1, 1)]


@pytest.mark.invariant("ORCH-INV-210")
def test_nothing_starts_while_no_gateway_is_there() -> None:
    stage = Detached("twice")
    (thinker,) = stage.links
    stage.lose_gateway()
    effects = stage.rows(thinker, stage.text(1, 0, "a", end=True))
    assert not of_kind(effects, fx.SubmitAttempts)
    assert len(of_kind(stage.take_over(), fx.SubmitAttempts)) == 1


def test_who_waits_for_a_slot_is_given_one_only_when_the_next_gateway_is_there() -> None:
    stage = Detached("echo", "talker")
    stage.lose_gateway()
    link, effects = stage.replica("thinker")
    assert not of_kind(effects, fx.SubmitAttempts)
    assert [order.link for order in of_kind(stage.take_over(), fx.SubmitAttempts)] == [link]


def test_who_is_refused_meanwhile_is_given_to_another_when_the_next_gateway_is_there() -> None:
    stage = Detached("echo", "thinker", "thinker")
    (order,) = of_kind(stage.opened, fx.SubmitAttempts)
    stage.lose_gateway()
    full = Terminal(outcome=Outcome.REJECTED, error=error_for("no_slot"))
    ended = stage.do(ev.AttemptEnded(link=order.link, slot=1, terminal=full))
    assert not of_kind(ended, fx.SubmitAttempts)
    (again,) = of_kind(stage.take_over(), fx.SubmitAttempts)
    assert again.link != order.link


def test_one_that_waits_to_be_admitted_waits_again() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("thinker")
    stage.open(make_request())
    stage.open(make_request())
    waits = ev.Opened(
        link=1, slot=9, request_id="w", epoch=1, deadline_left_s=0.0, request=make_request(),
        body=None, detach_s=DETACH_S,
    )  # fmt: skip
    stage.do(waits)
    assert stage.core.footprint()["waiting"] == 1
    stage.do(ev.ClientLost(link=1))
    assert stage.core.footprint()["waiting"] == 0
    assert not of_kind(stage.wait(3.0), fx.SubmitAttempts)  # There is room, and nobody to go.
    stage.do(ev.ClientAttached(link=50, window_units=UNITS, window_bytes=BYTES, mirrors=True))
    again = msgspec.structs.replace(waits, link=50, epoch=2, owner_since=1)
    assert len(of_kind(stage.do(again), fx.SubmitAttempts)) == 1
    assert stage.core.footprint()["running"] == 1


def test_credit_that_crosses_stages_goes_on_meanwhile() -> None:
    stage = Detached("rejoin", "thinker", "coder", "mixer")
    thinker, coder, _ = stage.links
    stage.rows(thinker, stage.text(1, 0, "a"))
    stage.rows(coder, stage.text(1, 0, "b", stage=1))  # So that the mixer runs too.
    stage.lose_gateway()
    effects = stage.rows(thinker, *(stage.text(1, pos, "a") for pos in range(1, 40)))
    assert [len(one.rows) for one in of_kind(effects, fx.SendRows) if one.link == coder] == [39]
    grants = [one for one in of_kind(effects, fx.SendGrants) if one.link == thinker]
    assert [grant.units for one in grants for grant in one.grants] == [96]


def test_who_takes_input_meanwhile_is_sent_more() -> None:
    stage = Detached("rejoin", "thinker", "mixer")
    coder, _ = stage.replica("coder", units=1)
    stage.rows(stage.links[0], *(stage.text(1, pos, "a") for pos in range(2)))
    stage.lose_gateway()
    more = Grant(1, TEXT, 2, BYTES)
    effects = stage.do(ev.InputCreditGranted(link=coder, grants=[more]))
    assert [row.pos for one in of_kind(effects, fx.SendRows) for row in one.rows] == [1]


def test_nobody_is_sent_what_stages_alone_read_while_no_gateway_is_there() -> None:
    stage = Detached("rejoin", "thinker", "coder", "mixer")
    thinker, *_ = stage.links
    assert len(sent(stage.rows(thinker, stage.text(1, 0, "a")), link=1)) == 1
    stage.lose_gateway()
    assert not sent(stage.rows(thinker, stage.text(1, 1, "b")), link=1)
    stage.take_over()
    assert not sent(stage.rows(thinker, stage.text(1, 2, "c")))


def test_stages_that_begin_later_hide_what_they_give_as_well() -> None:
    stage = Detached("relay3", "thinker", "coder", "talker")
    thinker, coder, _ = stage.links
    stage.take_over()
    stage.rows(thinker, stage.text(1, 0, "a"))
    assert not sent(stage.rows(coder, stage.text(1, 0, "b", stage=1)))


@pytest.mark.invariant("ORCH-INV-211")
def test_an_end_is_held_back_until_all_is_confirmed() -> None:
    stage = Detached()
    (thinker,) = stage.links
    assert not terminals(stage.rows(thinker, stage.text(1, 0, "a"), stage.text(1, 1, "", end=True)))
    assert not terminals(stage.confirm(1, 1))
    assert terminals(stage.confirm(2, 1)) == [(1, Outcome.COMPLETED, None)]


def test_a_finished_request_is_kept_for_the_next_gateway() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, stage.text(1, 0, "a", end=True))
    stage.lose_gateway()
    assert sent(stage.take_over(at(TEXT, 0))) == [(7, 0, "a", True)]
    assert terminals(stage.confirm(2, 1, link=50)) == [(50, Outcome.COMPLETED, None)]


def test_what_the_next_gateway_has_though_nobody_confirmed_it_is_not_sent_again() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, stage.text(1, 0, "a", end=True))
    stage.lose_gateway()
    effects = stage.take_over(at(TEXT, 1, ended=True))
    assert sent(effects) == []
    assert terminals(effects) == [(50, Outcome.COMPLETED, None)]


def test_a_client_that_takes_the_last_of_it_never_ends_it() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, stage.text(1, 0, "a", end=True))
    assert terminals(stage.wait(30.0)) == [(1, Outcome.FAILED, ErrorCode.SLOW_CONSUMER)]


def test_one_that_has_its_verdict_goes_on_nowhere() -> None:
    stage = Detached()
    stage.rows(stage.links[0], stage.text(1, 0, "a"))
    stage.do(ev.AbortAsked(link=1, slot=7, cause="asked"))
    effects = stage.take_over(at(TEXT, 1))
    assert (sent(effects), terminals(effects)) == ([], [(50, Outcome.FAILED, ErrorCode.LINK_LOST)])
    assert [one.link for one in of_kind(effects, fx.AnswerUnknown)] == [1]


def test_a_failure_meanwhile_is_told_to_the_next_gateway() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.lose_gateway()
    broken = Terminal(outcome=Outcome.FAILED, error=error_for("engine_error"))
    assert not terminals(stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=broken)))
    assert terminals(stage.take_over()) == [(50, Outcome.FAILED, ErrorCode.ENGINE_ERROR)]


def test_a_lost_replica_is_replaced_when_the_next_gateway_is_there() -> None:
    stage = Detached("echo", "talker")
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS)
    other, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.lose_gateway()
    assert not of_kind(stage.lose(thinker), fx.SubmitAttempts)
    effects = stage.take_over() + stage.wait(1.0)
    assert [order.link for order in of_kind(effects, fx.SubmitAttempts)] == [other]


def test_a_holder_that_lives_is_told_that_it_has_it_no_more() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, stage.text(1, 0, "a"))
    effects = stage.take_over()
    assert [(one.link, one.slot) for one in of_kind(effects, fx.AnswerUnknown)] == [(1, 7)]
    assert sent(effects) == [(7, 0, "a", False)]
    effects = stage.rows(thinker, stage.text(1, 1, "b"))
    assert (sent(effects, link=1), sent(effects)) == ([], [(7, 1, "b", False)])
    assert not stage.lose_gateway()


def test_a_gateway_with_an_older_epoch_gets_nothing() -> None:
    stage = Detached()
    stage.take_over(epoch=3)
    stage.do(ev.ClientAttached(link=60, window_units=UNITS, window_bytes=BYTES, mirrors=True))
    effects = stage.give(60, epoch=2)
    assert terminals(effects) == [(60, Outcome.REJECTED, ErrorCode.CONFLICT)]
    assert stage.core.requests_open == 1


def test_credit_begins_anew_with_each_gateway() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, *(stage.text(1, pos, "a") for pos in range(UNITS + 2)))
    stage.lose_gateway()
    effects = stage.take_over(at(TEXT, 3))
    # What was sent before goes at once, and takes of the new credit what it costs.
    assert [pos for _, pos, _, _ in sent(effects)] == [3, 4, 5, 6, 7, 8]
    assert [pos for _, pos, _, _ in sent(stage.confirm(4, 4, link=50))] == []


def test_its_worker_is_paid_for_what_waited_as_soon_as_the_next_gateway_has_it() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.lose_gateway()
    stage.rows(thinker, *(stage.text(1, pos, "a") for pos in range(64)))
    effects = stage.take_over() + stage.confirm(64, 64, link=50)
    grants = [one for one in of_kind(effects, fx.SendGrants) if one.link == thinker]
    assert max(grant.units for one in grants for grant in one.grants) == 64 + 64


def test_what_starts_later_has_its_input_from_the_present_gateway() -> None:
    stage = Detached("twice")
    (thinker,) = stage.links
    stage.lose_gateway()
    stage.take_over(body="here")
    effects = stage.rows(thinker, stage.text(1, 0, "a", end=True))
    assert [order.body for order in of_kind(effects, fx.SubmitAttempts)] == ["here"]


def test_it_waits_so_long_as_was_asked_and_no_longer() -> None:
    stage = Detached()
    stage.lose_gateway()
    assert not of_kind(stage.wait(DETACH_S - 0.1), fx.AbortAttempt)
    assert len(of_kind(stage.wait(0.1), fx.AbortAttempt)) == 1
    assert not any(stage.core.footprint()[what] for what in ("requests", "running", "attempts"))


def test_an_aborted_one_is_told_so_to_the_next_gateway() -> None:
    stage = Detached()
    stage.lose_gateway()
    (abort,) = of_kind(
        stage.do(ev.RequestAbortAsked(request_id="r1", cause="asked")), fx.AbortAttempt
    )
    assert abort.link == stage.links[0]
    stage.wait(TOMBSTONE_S)
    stage.take_over()
    assert terminals(stage.wait(1.0)) == [(50, Outcome.CANCELLED, ErrorCode.ABORTED)]


@pytest.mark.invariant("ORCH-INV-212")
@pytest.mark.parametrize("owner_since", [2, 3])
def test_one_that_another_orchestrator_had_in_between_goes_on_nowhere(owner_since: int) -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, stage.text(1, 0, "a"))
    stage.lose_gateway()
    stage.do(ev.ClientAttached(link=50, window_units=UNITS, window_bytes=BYTES, mirrors=True))
    effects = stage.give(50, epoch=3, owner_since=owner_since, lanes=[at(TEXT, 1)])
    assert terminals(effects) == [(50, Outcome.FAILED, ErrorCode.LINK_LOST)]
    assert stage.core.requests_open == 0


def test_an_owner_that_does_not_know_it_begins_what_gave_nothing() -> None:
    stage = Detached()
    stage.lose_gateway()
    stage.wait(DETACH_S)
    assert len(of_kind(stage.take_over(at(TEXT, 0)), fx.SubmitAttempts)) == 1


def test_an_owner_that_does_not_know_it_answers_for_what_gave_everything() -> None:
    stage = Detached()
    stage.lose_gateway()
    stage.wait(DETACH_S)
    effects = stage.take_over(at(TEXT, 4, ended=True))
    assert terminals(effects) == [(50, Outcome.COMPLETED, None)]
    assert not of_kind(effects, fx.SubmitAttempts)


@pytest.mark.invariant("ORCH-INV-212")
def test_what_the_client_has_is_not_drawn_again_by_an_owner_that_does_not_know_it() -> None:
    stage = Detached()
    stage.lose_gateway()
    stage.wait(DETACH_S)
    effects = stage.take_over(at(TEXT, 4))
    assert terminals(effects) == [(50, Outcome.FAILED, ErrorCode.LINK_LOST)]


def test_one_lane_of_two_is_not_everything() -> None:
    stage = Detached("talk", "thinker", "talker")
    stage.lose_gateway()
    stage.wait(DETACH_S)
    effects = stage.take_over(at(TEXT, 4, ended=True))
    assert terminals(effects) == [(50, Outcome.FAILED, ErrorCode.LINK_LOST)]


def test_positions_that_this_owner_never_sent_are_not_gone_on_from() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, stage.text(1, 0, "a"))
    stage.lose_gateway()
    assert terminals(stage.take_over(at(TEXT, 5))) == [(50, Outcome.FAILED, ErrorCode.LINK_LOST)]


def test_one_that_is_taken_over_twice_goes_on_each_time() -> None:
    stage = Detached()
    (thinker,) = stage.links
    stage.rows(thinker, stage.text(1, 0, "a"))
    stage.lose_gateway()
    stage.take_over()
    stage.rows(thinker, stage.text(1, 1, "b"))
    stage.confirm(1, 1, link=50)
    stage.lose_gateway(50)
    assert sent(stage.take_over(at(TEXT, 1), link=51, epoch=3), 51) == [(7, 1, "b", False)]


def test_a_row_that_waits_on_the_old_link_is_not_changed() -> None:
    stage = Detached()
    (thinker,) = stage.links
    row: Row = stage.text(1, 0, "a")
    stage.rows(thinker, row)
    stage.do(ev.ClientAttached(link=50, window_units=UNITS, window_bytes=BYTES, mirrors=True))
    effects = stage.do(
        ev.Opened(
            link=50, slot=9, request_id="r1", epoch=2, deadline_left_s=0.0,
            request=make_request(), body=None, detach_s=DETACH_S, owner_since=1,
        )
    )  # fmt: skip
    assert (row.slot, [slot for slot, *_ in sent(effects)]) == (7, [9])
