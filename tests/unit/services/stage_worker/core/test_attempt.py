import pytest

from services.stage_worker.core import MOVES, State
from services.stage_worker.core.attempt import ENDS, Attempt
from services.stage_worker.engines.base import Piece
from stagemesh.link.core import Grant
from stagemesh.media import Body, Handle, Modality
from stagemesh.outcome import End, FinishReason, Timings, Usage
from tests.helpers.worker_core import LINK, submission


def attempt(*modalities: Modality, window: tuple[int, int] = (64, 1 << 20)) -> Attempt:
    given = submission(modalities=modalities or (Modality.TEXT,))
    return Attempt(
        number=1,
        link=LINK,
        submission=given,
        role=given.roles[0],
        output_window=window,
        input_window=(4, 1000),
        now_s=0.0,
    )


def test_every_state_is_in_the_table_and_ends_lead_nowhere() -> None:
    assert set(MOVES) == set(State)
    assert all(not MOVES[end] for end in ENDS)
    reachable = {State.WAITING}.union(*MOVES.values())
    assert reachable == set(State)


def test_a_move_that_the_table_lacks_is_an_error() -> None:
    one = attempt()
    one.move(State.FINISHED)
    with pytest.raises(ValueError, match="no move"):
        one.move(State.RUNNING)


def test_outputs_after_an_end_or_of_another_lane_are_dropped() -> None:
    one = attempt()
    one.started(0.0)
    end = End(finish_reason=FinishReason.STOP)
    assert one.take(Piece(attempt=1, units=1, text="a", end=end), 0.0)
    assert one.take(Piece(attempt=1, units=1, text="b"), 0.0) == []
    assert one.take(Piece(attempt=1, modality=Modality.AUDIO, units=1), 0.0) == []


def test_what_the_fetch_of_its_input_took_is_part_of_its_timings() -> None:
    one = attempt()
    one.started(2.0, 1.5)
    (row,) = one.take(Piece(attempt=1, end=End(finish_reason=FinishReason.STOP)), 9.0)
    assert row.end is not None
    assert (row.end.timings.transfer_s, row.end.timings.queue_s) == (1.5, 2.0)


def test_timings_that_the_engine_measured_stay() -> None:
    one = attempt()
    one.started(0.0)
    end = End(finish_reason=FinishReason.STOP, timings=Timings(compute_s=5.0))
    (row,) = one.take(Piece(attempt=1, end=end), 9.0)
    assert row.end == end


def test_what_a_payload_store_holds_is_no_memory_of_ours() -> None:
    one = attempt(Modality.IMAGE, window=(1, 1 << 20))
    one.started(0.0)
    handle = Handle(
        handle_id="h", request_id="r", holder_id="w", incarnation=1, address="", size_bytes=9_000
    )
    piece = Piece(attempt=1, modality=Modality.IMAGE, units=1, body=Body(handle=handle))
    assert len(one.take(piece, 0.0)) == 1
    assert one.take(piece, 0.0) == []
    assert not one.flushed
    assert one.held_bytes == 0
    inline = Piece(attempt=1, modality=Modality.IMAGE, units=1, body=Body(inline=bytes(10)))
    one.take(inline, 0.0)
    assert one.held_bytes == 10
    assert len(one.granted(Grant(1, 0, 9, 1 << 30))) == 2
    assert one.held_bytes == 0
    assert one.flushed


def test_usage_adds_outputs_and_counts_the_prompt_once() -> None:
    one = attempt(Modality.TEXT, Modality.IMAGE)
    one.started(0.0)

    def end(usage: Usage) -> End:
        return End(finish_reason=FinishReason.STOP, usage=usage)

    one.take(Piece(attempt=1, end=end(Usage(prompt_tokens=5, completion_tokens=3))), 0.0)
    last = end(Usage(prompt_tokens=5, images=1))
    one.discard(Piece(attempt=1, modality=Modality.IMAGE, end=last))
    assert one.usage() == Usage(prompt_tokens=5, completion_tokens=3, images=1)
    assert one.lanes_open == 0
