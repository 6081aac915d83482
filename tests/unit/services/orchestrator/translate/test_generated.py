"""Rows as a gRPC client reads them."""

import pytest

from services.orchestrator.core.effects import AnswerInteraction
from services.orchestrator.translate import PIECE_BYTES_MAX, GeneratedOutputs
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2, media_pb2, outcome_pb2
from stagemesh.link.core import Row
from stagemesh.media import AUDIO_PCM, Body, Handle, Modality, OutputKind, lane_of
from stagemesh.outcome import End, FinishReason, error_for

STAGES = ("thinker", "talker")
END = End(finish_reason=FinishReason.STOP)


@pytest.mark.invariant("ENTRY-INV-101")
def test_a_text_row_names_its_stage_and_choice() -> None:
    row = Row(1, lane_of(0, 1, Modality.TEXT), 5, 2, " w5 w6", kind=OutputKind.REASONING, end=END)
    output = GeneratedOutputs(STAGES, 2).whole(row)

    assert (output.stage, output.choice) == ("thinker", 1)
    assert output.modality == media_pb2.MODALITY_TEXT
    assert (output.pos, output.units, output.text) == (5, 2, " w5 w6")
    assert output.kind == link_pb2.OUTPUT_KIND_REASONING
    assert output.end.finish_reason == outcome_pb2.FINISH_REASON_STOP


def test_an_output_that_is_not_the_last_has_no_end() -> None:
    output = GeneratedOutputs(STAGES, 1).whole(Row(1, lane_of(0, 0, Modality.TEXT), 0, 1, " w0"))

    assert not output.HasField("end")
    assert not output.HasField("body")


def test_inline_bytes_come_with_what_is_needed_to_read_them() -> None:
    body = Body(inline=b"\0\1", media_type=AUDIO_PCM, sample_rate_hz=24000)
    row = Row(1, lane_of(1, 0, Modality.AUDIO), 0, 1, body=body)
    output = GeneratedOutputs(STAGES, 1).whole(row)

    assert output.stage == "talker"
    assert output.body.inline == b"\0\1"
    assert (output.body.media_type, output.body.sample_rate_hz) == (AUDIO_PCM, 24000)


def by_handle(size_bytes: int) -> Row:
    handle = Handle(
        handle_id="h", request_id="r", holder_id="w", incarnation=1, address="a", size_bytes=1
    )
    body = Body(handle=handle, media_type="audio/wav", sample_rate_hz=8000)
    return Row(1, lane_of(1, 0, Modality.AUDIO), 40, size_bytes, body=body, end=END)


@pytest.mark.parametrize(
    ("size_bytes", "pieces"),
    [
        (0, 1),
        (1, 1),
        (PIECE_BYTES_MAX, 1),
        (PIECE_BYTES_MAX + 1, 2),
        (3 * PIECE_BYTES_MAX, 3),
    ],
)
def test_fetched_bytes_come_in_bounded_pieces_that_join_to_the_whole(
    size_bytes: int, pieces: int
) -> None:
    data = bytes(index % 251 for index in range(size_bytes))
    outputs = list(GeneratedOutputs(STAGES, 1).pieces(by_handle(size_bytes), memoryview(data)))

    assert len(outputs) == pieces
    assert b"".join(output.body.inline for output in outputs) == data
    assert all(len(output.body.inline) <= PIECE_BYTES_MAX for output in outputs)
    assert [output.more for output in outputs] == [True] * (pieces - 1) + [False]
    assert {output.pos for output in outputs} == {40}


def test_units_and_end_come_once_with_the_last_piece() -> None:
    data = memoryview(bytes(2 * PIECE_BYTES_MAX))
    first, last = GeneratedOutputs(STAGES, 1).pieces(by_handle(2 * PIECE_BYTES_MAX), data)

    assert (first.units, first.HasField("end")) == (0, False)
    assert (last.units, last.HasField("end")) == (2 * PIECE_BYTES_MAX, True)


def test_a_handle_never_leaves_the_mesh() -> None:
    for output in GeneratedOutputs(STAGES, 1).pieces(by_handle(3), memoryview(b"abc")):
        assert output.body.WhichOneof("bytes") == "inline"
        assert (output.body.media_type, output.body.sample_rate_hz) == ("audio/wav", 8000)


def test_what_became_of_a_prompt_names_its_stage_or_its_cause() -> None:
    outputs, response = GeneratedOutputs(STAGES, 1), orchestrator_service_pb2.ConverseResponse()
    outputs.answer(
        response, AnswerInteraction(link=0, slot=1, interaction_id="p", stage=1, applied_at=5)
    )
    error = error_for("conflict")
    outputs.answer(response, AnswerInteraction(link=0, slot=1, interaction_id="q", error=error))
    taken, refused = response.interactions
    assert (taken.interaction_id, taken.stage, taken.applied_at) == ("p", "talker", 5)
    assert not taken.HasField("error")
    assert refused.error.reason == "conflict"
