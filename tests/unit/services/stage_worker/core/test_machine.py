import pytest

from services.stage_worker.core import Limits, Source
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.engines.base import Piece
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import ErrorCode, Outcome, error_for
from tests.helpers.worker_core import (
    END,
    LINK,
    TEXT_LANE,
    Stepped,
    of_kind,
    submission,
    terminal_of,
    text_piece,
)

SOURCE = lane_of(0, 0, Modality.TEXT)
SOURCES = (Source(lane=SOURCE, stage="source", companion="", choice=0),)


def row(pos: int, *, slot: int = 1, last: bool = False) -> Row:
    return Row(slot, SOURCE, pos, 1, "y", end=END if last else None)


def test_one_engine_step_is_one_order_for_each_link() -> None:
    worker = Stepped()
    worker.step(seen.LinkAttached(link=2, window_units=64, window_bytes=1 << 20))
    (a,), (b,) = worker.start(), worker.start(submission(request_id="req_b", slots=(2,)))
    worker.step(seen.Submitted(link=2, submission=submission(request_id="req_c")))
    worker.step(seen.AttemptStarted(attempt=3))
    effects = worker.pieces(text_piece(a), text_piece(3), text_piece(b))
    orders = of_kind(effects, do.SendRows)
    assert [(order.link, [row.slot for row in order.rows]) for order in orders] == [
        (LINK, [1, 2]),
        (2, [1]),
    ]
    assert len(effects) == len(orders)


def test_positions_run_on_in_each_lane() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(modalities=(Modality.TEXT, Modality.IMAGE)))
    worker.pieces(text_piece(a, units=3))
    (order,) = worker.pieces(
        text_piece(a, units=2), Piece(attempt=a, modality=Modality.IMAGE, units=1)
    )
    assert isinstance(order, do.SendRows)
    assert [(row.pos, row.units) for row in order.rows] == [(3, 2), (0, 1)]


def test_an_attempt_is_finished_when_every_lane_has_ended() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(modalities=(Modality.TEXT, Modality.IMAGE)))
    assert not of_kind(worker.pieces(text_piece(a, end=END)), do.ForgetAttempt)
    last = Piece(attempt=a, modality=Modality.IMAGE, end=END)
    (forgotten,) = of_kind(worker.pieces(last), do.ForgetAttempt)
    assert forgotten.end == "finished"
    assert worker.core.slots_free == 4
    assert worker.core.attempts.open == 0


def test_ends_say_where_the_time_went() -> None:
    worker = Stepped()
    (order,) = of_kind(worker.submit(submission()), do.StartAttempt)
    worker.now_s += 1.0
    worker.step(seen.AttemptStarted(attempt=order.attempt))
    worker.now_s += 2.0
    worker.pieces(text_piece(order.attempt))
    worker.now_s += 4.0
    (sent,) = of_kind(worker.pieces(text_piece(order.attempt, end=END)), do.SendRows)
    end = sent.rows[0].end
    assert end is not None
    assert (end.timings.queue_s, end.timings.first_output_s) == (1.0, 3.0)
    assert (end.timings.compute_s, end.timings.total_s) == (6.0, 7.0)


def test_outputs_wait_for_credit_and_the_engine_slot_does_not() -> None:
    worker = Stepped(window=(1, 1000))
    (a,) = worker.start()
    effects = worker.pieces(text_piece(a, " a"), text_piece(a, " b", end=END))
    assert [row.text for row in of_kind(effects, do.SendRows)[0].rows] == [" a"]
    assert worker.core.slots_free == 4
    effects = worker.step(seen.CreditGranted(link=LINK, grants=[Grant(1, 0, 9, 9000)]))
    assert [row.text for row in of_kind(effects, do.SendRows)[0].rows] == [" b"]
    assert of_kind(effects, do.ForgetAttempt)[0].end == "finished"


def test_an_error_comes_after_the_outputs_before_it() -> None:
    worker = Stepped(window=(1, 1000))
    (a,) = worker.start()
    broken = Piece(attempt=a, error=error_for("content_filter"))
    effects = worker.pieces(text_piece(a, " a"), text_piece(a, " b"), broken)
    assert not of_kind(effects, do.SendTerminal)
    effects = worker.step(seen.CreditGranted(link=LINK, grants=[Grant(1, 0, 9, 9000)]))
    assert [type(effect) for effect in effects] == [
        do.SendRows,
        do.SendTerminal,
        do.ForgetAttempt,
    ]
    assert terminal_of(effects) == (Outcome.FAILED, ErrorCode.GUARDRAIL)


def test_errors_say_where_they_happened() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(attempt=3))
    effects = worker.pieces(Piece(attempt=a, error=error_for("engine_error", "it broke")))
    (order,) = of_kind(effects, do.SendTerminal)
    error = order.terminal.error
    assert error is not None
    assert (error.stage, error.pool, error.replica_id, error.attempt, error.message) == (
        ("thinker", "pool", "replica-0", 3, "it broke")
    )


def test_too_much_held_back_fails_the_attempt_alone() -> None:
    worker = Stepped(window=(1, 1000), limits=Limits(outbox_bytes_max=10))
    (a,), (b,) = worker.start(), worker.start(submission(request_id="req_b", slots=(2,)))
    effects = worker.pieces(text_piece(a), text_piece(a, "x" * 11), text_piece(b))
    assert terminal_of(effects) == (Outcome.FAILED, ErrorCode.SLOW_CONSUMER)
    assert of_kind(effects, do.AbortEngine)[0].attempt == a
    assert [row.slot for row in of_kind(effects, do.SendRows)[0].rows] == [1, 2]
    assert worker.core.slots_free == 2  # The engine has not yet let go.
    worker.pieces(Piece(attempt=a, error=error_for("aborted")))
    assert worker.core.slots_free == 3


def test_no_free_slot_refuses_and_a_group_is_refused_whole() -> None:
    worker = Stepped(slots=1)
    worker.start()
    effects = worker.submit(submission(request_id="req_b", slots=(2,)))
    assert terminal_of(effects) == (Outcome.REJECTED, ErrorCode.OVERLOADED)
    companions = submission(request_id="req_c", slots=(3, 4), choices=1)
    effects = worker.submit(companions)
    assert [order.slot for order in of_kind(effects, do.SendTerminal)] == [3, 4]


def test_choices_are_taken_as_far_as_there_is_room() -> None:
    worker = Stepped(slots=2)
    effects = worker.submit(submission(slots=(1, 2, 3)))
    assert [order.role.slot for order in of_kind(effects, do.StartAttempt)] == [1, 2]
    assert [order.slot for order in of_kind(effects, do.SendTerminal)] == [3]


def test_an_abort_is_answered_when_the_engine_lets_go() -> None:
    worker = Stepped()
    (a,) = worker.start()
    effects = worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client"))
    assert effects == [do.AbortEngine(attempt=a)]
    assert worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client")) == []
    assert worker.pieces(text_piece(a)) == []
    effects = worker.pieces(Piece(attempt=a, end=END, error=error_for("aborted")))
    (order,) = of_kind(effects, do.SendTerminal)
    assert order.terminal.outcome is Outcome.CANCELLED
    assert order.terminal.usage.completion_tokens == 1


def test_ends_that_were_under_way_answer_an_abort_too() -> None:
    worker = Stepped()
    (a,) = worker.start()
    worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client"))
    effects = worker.pieces(text_piece(a, end=END))
    assert terminal_of(effects) == (Outcome.CANCELLED, ErrorCode.ABORTED)
    assert not of_kind(effects, do.SendRows)


def test_an_abort_of_what_the_engine_does_not_have_is_answered_at_once() -> None:
    worker = Stepped()
    worker.submit(submission())
    effects = worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client"))
    assert terminal_of(effects)[0] is Outcome.CANCELLED
    assert worker.core.slots_free == 4


def test_an_abort_before_its_submit_is_remembered() -> None:
    worker = Stepped()
    assert worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client")) == [
        do.SendUnknown(link=LINK, slot=1)
    ]
    assert terminal_of(worker.submit(submission()))[0] is Outcome.CANCELLED


def test_an_unknown_slot_is_answered_once_and_its_grants_never() -> None:
    worker = Stepped()
    assert worker.step(seen.CreditGranted(link=LINK, grants=[Grant(9, 0, 1, 1)])) == []
    arrived = seen.InputsArrived(link=LINK, rows=[row(0, slot=9)])
    assert worker.step(arrived) == [do.SendUnknown(link=LINK, slot=9)]
    assert worker.step(arrived) == []


def test_inputs_go_to_their_attempts_once_and_in_order() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(sources=SOURCES))
    effects = worker.step(seen.InputsArrived(link=LINK, rows=[row(0), row(1), row(0)]))
    assert effects == [do.FeedAttempt(attempt=a, rows=[row(0), row(1)])]
    assert worker.core.repeated_inputs == 1


@pytest.mark.parametrize("bad", [row(5), Row(1, TEXT_LANE, 0, 1, "y")])
def test_an_input_that_does_not_fit_fails_its_attempt(bad: Row) -> None:
    worker = Stepped()
    worker.start(submission(sources=SOURCES))
    effects = worker.step(seen.InputsArrived(link=LINK, rows=[bad]))
    assert terminal_of(effects) == (Outcome.FAILED, ErrorCode.PROTOCOL)


def test_input_credit_is_returned_as_inputs_are_taken() -> None:
    worker = Stepped(limits=Limits(input_window_units=4, input_window_bytes=1000))
    (a,) = worker.start(submission(sources=SOURCES))
    taken = seen.InputTaken(attempt=a, lane=SOURCE, units=1, bytes=1)
    assert worker.step(taken) == []
    assert worker.step(taken) == [
        do.SendGrants(link=LINK, grants=[Grant(slot=1, source=SOURCE, units=6, bytes=1002)])
    ]


@pytest.mark.invariant("ORCH-INV-205")
def test_a_higher_epoch_ends_the_same_role_and_a_lower_one_is_fenced() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(epoch=2))
    assert worker.submit(submission(epoch=1, slots=(2,))) == [
        do.SendFenced(link=LINK, request_id="req_a", epoch=2)
    ]
    effects = worker.submit(submission(epoch=3, slots=(3,)))
    assert of_kind(effects, do.AbortEngine)[0].attempt == a
    assert terminal_of(effects)[0] is Outcome.CANCELLED
    assert of_kind(effects, do.StartAttempt)[0].role.slot == 3


def test_payloads_are_kept_and_dropped_by_the_highest_epoch_only() -> None:
    worker = Stepped()
    renew = seen.RenewAsked(link=LINK, request_id="req_a", epoch=2)
    assert worker.step(renew) == [do.RenewPayloads(request_id="req_a")]
    old = seen.ReleaseAsked(link=LINK, request_id="req_a", epoch=1)
    assert worker.step(old) == [do.SendFenced(link=LINK, request_id="req_a", epoch=2)]
    new = seen.ReleaseAsked(link=LINK, request_id="req_a", epoch=2, handle_ids=("h",))
    assert worker.step(new) == [do.ReleasePayloads(request_id="req_a", handle_ids=("h",))]


def test_a_deadline_ends_an_attempt_and_frees_its_slot_later() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(deadline_left_s=5.0))
    assert worker.core.next_wakeup_s() == 105.0
    worker.now_s = 105.0
    effects = worker.step(seen.Tick(steps=0))
    assert terminal_of(effects) == (Outcome.DEADLINE_EXCEEDED, ErrorCode.DEADLINE)
    assert worker.core.slots_free == 3
    worker.pieces(Piece(attempt=a, error=error_for("aborted")))
    assert worker.core.slots_free == 4


def test_input_that_cannot_be_used_ends_the_attempt_with_its_own_code() -> None:
    worker = Stepped()
    (order,) = of_kind(worker.submit(submission()), do.StartAttempt)
    broke = seen.AttemptBroke(attempt=order.attempt, error=error_for("invalid_value"))
    assert terminal_of(worker.step(broke)) == (Outcome.FAILED, ErrorCode.INVALID_ARGUMENT)
    assert worker.step(broke) == []


def test_a_lost_handle_is_named_before_the_end() -> None:
    worker = Stepped()
    (order,) = of_kind(worker.submit(submission()), do.StartAttempt)
    effects = worker.step(
        seen.AttemptBroke(attempt=order.attempt, error=error_for("handle_lost"), handle_id="h")
    )
    assert effects[0] == do.SendHandleLost(link=LINK, slot=1, handle_id="h")
    assert terminal_of(effects) == (Outcome.FAILED, ErrorCode.REPLICA_LOST)


def test_nothing_to_do_ends_every_lane_empty() -> None:
    worker = Stepped()
    (order,) = of_kind(worker.submit(submission()), do.StartAttempt)
    (sent, forgotten) = worker.step(seen.NothingToDo(attempt=order.attempt))
    assert isinstance(sent, do.SendRows)
    assert [(row.units, row.end is not None) for row in sent.rows] == [(0, True)]
    assert isinstance(forgotten, do.ForgetAttempt)


def test_a_slot_that_is_used_twice_fails_both() -> None:
    worker = Stepped()
    worker.start()
    effects = worker.submit(submission(request_id="req_b"))
    assert [order.terminal.outcome for order in of_kind(effects, do.SendTerminal)] == [
        Outcome.FAILED,
        Outcome.REJECTED,
    ]


def test_a_submission_that_cannot_be_read_is_refused_role_by_role() -> None:
    worker = Stepped()
    event = seen.SubmissionRefused(
        link=LINK, submission=submission(slots=(1, 2)), error=error_for("protocol_error")
    )
    assert [order.slot for order in of_kind(worker.step(event), do.SendTerminal)] == [1, 2]


def test_pieces_that_nobody_waits_for_are_counted() -> None:
    worker = Stepped()
    assert worker.pieces(text_piece(99)) == []
    assert worker.core.stray_pieces == 1


def by_handle(attempt: int, handle_id: str) -> Piece:
    handle = Handle(
        handle_id=handle_id, request_id="req_a", holder_id="replica-0", incarnation=1,
        address="127.0.0.1:1", size_bytes=10,
    )  # fmt: skip
    return Piece(attempt=attempt, modality=Modality.TENSOR, units=1, body=Body(handle=handle))


def test_bytes_of_which_nobody_was_told_are_dropped_with_their_attempt() -> None:
    worker = Stepped(window=(1, 1000))
    (a,) = worker.start(submission(modalities=(Modality.TENSOR,)))
    worker.pieces(by_handle(a, "h_told"))
    worker.pieces(by_handle(a, "h_waits"))
    worker.pieces(by_handle(a, "h_waits_too"))
    worker.step(seen.CreditGranted(link=LINK, grants=[Grant(1, 0, 2, 2000)]))
    effects = worker.pieces(Piece(attempt=a, error=error_for("aborted")))
    effects += worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client"))
    (order,) = of_kind(effects, do.ReleasePayloads)
    assert (order.request_id, order.handle_ids) == ("req_a", ("h_waits_too",))


def test_bytes_that_were_put_away_while_their_attempt_was_stopped_are_dropped() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(modalities=(Modality.TENSOR,)))
    worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client"))
    (order,) = of_kind(worker.pieces(by_handle(a, "h_late")), do.ReleasePayloads)
    assert (order.request_id, order.handle_ids) == ("req_a", ("h_late",))
    worker.pieces(Piece(attempt=a, error=error_for("aborted")))
    (order,) = of_kind(worker.pieces(by_handle(a, "h_later")), do.ReleasePayloads)
    assert order.handle_ids == ("h_later",)


def test_only_a_running_attempt_has_a_request_to_store_for() -> None:
    worker = Stepped()
    (a,) = worker.start()
    assert worker.core.request_of(a) == "req_a"
    worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client"))
    assert worker.core.request_of(a) is None
