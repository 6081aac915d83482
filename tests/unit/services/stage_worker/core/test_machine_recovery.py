"""Attempts whose owner is lost or replaced, and those that go on from earlier ones."""

import pytest

from services.stage_worker.core import Limits, Source
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.link.core import NO_SOURCE, Grant, LaneJournal, Row
from stagemesh.media import Modality, lane_of
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


@pytest.mark.invariant("ORCH-INV-205")
def test_a_fence_silences_lower_epochs_without_a_word() -> None:
    worker = Stepped()
    (a,) = worker.start()
    assert worker.step(seen.FenceRaised(link=LINK, request_id="req_a", epoch=2)) == []
    assert worker.pieces(text_piece(a)) == []
    worker.now_s += Limits().orphan_s
    effects = worker.step(seen.Tick(steps=0))
    assert [type(effect) for effect in effects] == [do.AbortEngine, do.ForgetAttempt]


def test_a_fence_is_told_to_who_had_the_request() -> None:
    """It may be without a gateway, and wait for one for long."""
    worker = Stepped()
    worker.start()
    fence = seen.FenceRaised(link=LINK + 1, request_id="req_a", epoch=2)
    assert worker.step(fence) == [do.SendFenced(link=LINK, request_id="req_a", epoch=2)]
    assert worker.step(fence) == []


@pytest.mark.invariant("ORCH-INV-203")
def test_a_fence_does_not_silence_the_answer_to_an_abort() -> None:
    """One orchestrator may be both owners: it aborts what it had and fences it at once."""
    worker = Stepped()
    (a,) = worker.start()
    worker.step(seen.AbortAsked(link=LINK, slot=1, cause="opened again"))
    assert worker.step(seen.FenceRaised(link=LINK, request_id="req_a", epoch=2)) == []
    effects = worker.pieces(Piece(attempt=a, error=error_for("aborted")))
    (answer,) = of_kind(effects, do.SendTerminal)
    assert (answer.slot, answer.terminal.outcome) == (1, Outcome.CANCELLED)


def test_a_fence_is_answered_with_the_payloads_that_it_claims() -> None:
    worker = Stepped()
    fence = seen.FenceRaised(link=LINK, request_id="req_a", epoch=2, handle_ids=("h1", "h2"))
    assert worker.step(fence) == [
        do.ClaimPayloads(link=LINK, request_id="req_a", epoch=2, handle_ids=("h1", "h2"))
    ]
    old = seen.FenceRaised(link=LINK, request_id="req_a", epoch=1, handle_ids=("h1",))
    assert worker.step(old) == [do.SendFenced(link=LINK, request_id="req_a", epoch=2)]


def test_a_fence_leaves_its_own_epoch_alone() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(epoch=2))
    assert worker.step(seen.FenceRaised(link=LINK, request_id="req_a", epoch=2)) == []
    assert of_kind(worker.pieces(text_piece(a)), do.SendRows)


def test_after_its_link_an_attempt_is_silent_for_a_while_and_then_stopped() -> None:
    worker = Stepped(limits=Limits(orphan_s=2.0))
    (a,) = worker.start()
    assert worker.step(seen.LinkLost(link=LINK)) == []
    assert worker.pieces(text_piece(a)) == []
    assert worker.core.next_wakeup_s() == 102.0
    worker.now_s = 102.0
    effects = worker.step(seen.Tick(steps=0))
    assert [type(effect) for effect in effects] == [do.AbortEngine, do.ForgetAttempt]
    worker.pieces(Piece(attempt=a, error=error_for("aborted")))
    assert len(worker.core.attempts) == 0


def test_an_orphan_that_ends_by_itself_tells_nobody() -> None:
    worker = Stepped()
    (a,) = worker.start()
    worker.step(seen.LinkLost(link=LINK))
    (forgotten,) = worker.pieces(text_piece(a, end=END))
    assert forgotten == do.ForgetAttempt(attempt=a, end="cancelled")
    assert worker.core.slots_free == 4
    worker.now_s += 10.0
    assert worker.step(seen.Tick(steps=0)) == []


def test_what_the_engine_has_not_begun_does_not_outlive_its_link() -> None:
    worker = Stepped()
    worker.submit(submission())
    effects = worker.step(seen.LinkLost(link=LINK))
    assert [type(effect) for effect in effects] == [do.ForgetAttempt]
    assert worker.core.slots_free == 4


def test_a_submission_from_a_new_owner_ends_the_orphan_of_the_same_role() -> None:
    worker = Stepped()
    (a,) = worker.start()
    worker.step(seen.LinkLost(link=LINK))
    worker.step(seen.LinkAttached(link=2, window_units=64, window_bytes=1 << 20))
    effects = worker.step(seen.Submitted(link=2, submission=submission(epoch=2)))
    assert [type(effect) for effect in effects] == [
        do.AbortEngine, do.ForgetAttempt, do.StartAttempt,
    ]  # fmt: skip
    assert effects[0] == do.AbortEngine(attempt=a)


def test_a_lower_attempt_does_not_replace_a_higher_one() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(attempt=2))
    effects = worker.submit(submission(attempt=1, slots=(2,)))
    assert terminal_of(effects) == (Outcome.CANCELLED, ErrorCode.ABORTED)
    assert not of_kind(effects, do.StartAttempt)
    assert of_kind(worker.pieces(text_piece(a)), do.SendRows)


def test_lanes_go_on_where_earlier_attempts_came_to() -> None:
    worker = Stepped()
    lane = LaneJournal(lane=TEXT_LANE, next=7, ids=list(range(7)))
    (a,) = worker.start(
        submission(token_ids=True, contract=ResumeContract.TOKENS, resume=[lane], attempt=2)
    )
    (order,) = worker.pieces(Piece(attempt=a, units=2, text=" x y", ids=[7, 8]))
    assert isinstance(order, do.SendRows)
    assert [(row.pos, row.units, row.ids) for row in order.rows] == [(7, 2, [7, 8])]


def test_ids_go_only_where_they_were_asked_for() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(token_ids=False))
    (order,) = worker.pieces(Piece(attempt=a, units=1, text=" x", ids=[7]))
    assert isinstance(order, do.SendRows)
    assert order.rows[0].ids is None


def test_a_lane_whose_end_is_known_says_nothing_more() -> None:
    worker = Stepped()
    image = lane_of(1, 0, Modality.IMAGE)
    (a,) = worker.start(
        submission(
            modalities=(Modality.TEXT, Modality.IMAGE),
            contract=ResumeContract.REPLAY,
            resume=[LaneJournal(lane=image, next=1, end=END)],
        )
    )
    assert worker.pieces(Piece(attempt=a, modality=Modality.IMAGE, end=END)) == []
    effects = worker.pieces(text_piece(a, end=END))
    assert [row.lane for row in of_kind(effects, do.SendRows)[0].rows] == [TEXT_LANE]
    assert of_kind(effects, do.ForgetAttempt)[0].end == "finished"


def test_an_attempt_is_over_with_the_last_end_that_its_orchestrator_waits_for() -> None:
    worker = Stepped(window=(1, 1 << 20))
    image = lane_of(1, 0, Modality.IMAGE)
    (a,) = worker.start(
        submission(
            modalities=(Modality.TEXT, Modality.IMAGE),
            contract=ResumeContract.REPLAY,
            resume=[LaneJournal(lane=image, next=1, end=END)],
        )
    )
    worker.pieces(text_piece(a))
    # The engine has not come to the end of its image, which was heard long ago.
    assert worker.pieces(text_piece(a, end=END)) == [do.AbortEngine(attempt=a)]
    assert worker.pieces(Piece(attempt=a, error=error_for("aborted"))) == []
    assert worker.core.slots_free == 4
    granted = seen.CreditGranted(link=LINK, grants=[Grant(1, NO_SOURCE, 64, 1 << 20)])
    sent, forgotten = worker.step(granted)
    assert isinstance(sent, do.SendRows)
    assert sent.rows[0].end == END
    assert forgotten == do.ForgetAttempt(attempt=a, end="finished")
    # Nor is it ended twice by what comes after.
    assert not of_kind(worker.submit(submission(attempt=2, slots=(2,))), do.SendTerminal)


def test_by_the_input_an_attempt_may_begin_in_the_middle_of_its_source() -> None:
    worker = Stepped()
    (a,) = worker.start(submission(sources=SOURCES, contract=ResumeContract.PER_INPUT))
    effects = worker.step(seen.InputsArrived(link=LINK, rows=[row(5), row(6)]))
    assert effects == [do.FeedAttempt(attempt=a, rows=[row(5), row(6)])]
    effects = worker.step(seen.InputsArrived(link=LINK, rows=[row(9)]))
    assert terminal_of(effects) == (Outcome.FAILED, ErrorCode.PROTOCOL)


def test_origins_travel_with_their_outputs() -> None:
    worker = Stepped()
    (a,) = worker.start()
    (order,) = worker.pieces(Piece(attempt=a, units=1, text=" x", origin=(3, 5)))
    assert isinstance(order, do.SendRows)
    assert order.rows[0].origin == (3, 5)


def test_where_there_was_output_no_input_at_all_is_a_divergence() -> None:
    worker = Stepped()
    lane = LaneJournal(lane=TEXT_LANE, next=3)
    (order,) = of_kind(
        worker.submit(submission(contract=ResumeContract.REPLAY, resume=[lane])), do.StartAttempt
    )
    effects = worker.step(seen.NothingToDo(attempt=order.attempt))
    assert terminal_of(effects) == (Outcome.FAILED, ErrorCode.REPLICA_LOST)


def test_by_the_input_nothing_left_to_do_ends_the_lane_where_it_stands() -> None:
    worker = Stepped()
    audio = lane_of(1, 0, Modality.AUDIO)
    (order,) = of_kind(
        worker.submit(
            submission(
                modalities=(Modality.AUDIO,),
                contract=ResumeContract.PER_INPUT,
                resume=[LaneJournal(lane=audio, next=480)],
            )
        ),
        do.StartAttempt,
    )
    (sent, _) = worker.step(seen.NothingToDo(attempt=order.attempt))
    assert isinstance(sent, do.SendRows)
    (last,) = sent.rows
    assert (last.pos, last.units) == (480, 0)
    assert last.end is not None
    assert last.end.usage.audio_output_samples == 480
