"""Rows, as what a gRPC client reads: stages by name, choices by number, bytes inline."""

from collections.abc import Iterator, Sequence
from typing import Final

from services.orchestrator.core.effects import AnswerInteraction
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2, media_pb2
from stagemesh.link.core import Row
from stagemesh.media import split_lane
from stagemesh.wire import body_to_proto, end_to_proto, error_to_proto, modality_to_proto

__all__ = ["PIECE_BYTES_MAX", "GeneratedOutputs"]

PIECE_BYTES_MAX: Final = 256 * 1024
"""The most that one output carries of a body; what is larger comes in several."""


class GeneratedOutputs:
    """Makes the outputs of one request for `choices` choices, over the stages of these names."""

    def __init__(self, stages: Sequence[str], choices: int) -> None:
        self._stages = stages
        self._choices = choices

    def whole(self, row: Row) -> orchestrator_service_pb2.GeneratedOutput:
        """Make the output of a row that is text, an end, or inline bytes."""
        output = self._head(row)
        output.units = row.units
        output.text = row.text
        output.kind = link_pb2.OutputKind.ValueType(row.kind)
        output.segment_end = row.segment_end
        if row.body is not None:
            output.body.CopyFrom(body_to_proto(row.body))
        if row.end is not None:
            output.end.CopyFrom(end_to_proto(row.end))
        return output

    def pieces(
        self, row: Row, data: memoryview
    ) -> Iterator[orchestrator_service_pb2.GeneratedOutput]:
        """Make the outputs of a row whose bytes were fetched.

        All stand at the row's position. Units and end come with the last piece, since the item is
        not there before.
        """
        offsets = range(0, max(len(data), 1), PIECE_BYTES_MAX)
        for offset in offsets:
            output = self._head(row)
            output.body.CopyFrom(_inline_body(row, data[offset : offset + PIECE_BYTES_MAX]))
            if offset == offsets[-1]:
                output.units = row.units
                output.segment_end = row.segment_end
                if row.end is not None:
                    output.end.CopyFrom(end_to_proto(row.end))
            else:
                output.more = True
            yield output

    def answer(
        self,
        response: orchestrator_service_pb2.ConverseResponse
        | orchestrator_service_pb2.GenerateResponse,
        answer: AnswerInteraction,
    ) -> None:
        """Add what came of a change of the prompt; only conversations have any."""
        if isinstance(response, orchestrator_service_pb2.ConverseResponse):
            changed = response.interactions.add(interaction_id=answer.interaction_id)
            if answer.error is not None:
                changed.error.CopyFrom(error_to_proto(answer.error))
            else:
                changed.stage = self._stages[answer.stage]
                changed.applied_at = answer.applied_at

    def _head(self, row: Row) -> orchestrator_service_pb2.GeneratedOutput:
        lane = split_lane(row.lane)
        return orchestrator_service_pb2.GeneratedOutput(
            stage=self._stages[lane.stage],
            choice=lane.role % self._choices,
            modality=modality_to_proto(lane.modality),
            pos=row.pos,
        )


def _inline_body(row: Row, data: memoryview) -> media_pb2.Body:
    body = media_pb2.Body() if row.body is None else body_to_proto(row.body)
    body.inline = bytes(data)
    return body
