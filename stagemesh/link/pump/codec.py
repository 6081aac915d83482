"""One message of a link: columns to rows and back, and the frames beside them.

A message is decoded into steps, nearly always one. Output and Input frames become rows; where one
follows another kind of frame a new step begins, so that steps, and rows before frames before grants
within a step, are the order in which the message is to be applied.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import INPUT_END, NO_ORIGIN, REQUEST_SOURCE, Batch, Grant, Row
from stagemesh.outcome import End
from stagemesh.wire import body_from_proto, body_to_proto, end_from_proto, end_to_proto

__all__ = ["Received", "WireFault", "decode", "encode"]

_ROW_FRAMES: Final = frozenset({"input", "output"})


class WireFault(ValueError):
    """The peer broke a rule of the link; the message names it. It ends the link."""


class Received(msgspec.Struct, gc=False):
    """What came in one message, or in one step of it: apply rows, then frames, then grants."""

    rows: list[Row]
    frames: list[link_pb2.Frame]
    grants: list[Grant]


def encode(batch: Batch) -> link_pb2.LinkMessage:
    """Make the message of a batch."""
    message = link_pb2.LinkMessage()
    if batch.slots:
        _encode_rows(batch, message.outputs)
    for frame in batch.frames:
        if not isinstance(frame, Row):
            message.frames.append(frame)
        elif frame.lane == REQUEST_SOURCE:
            _encode_input(frame, message.frames.add().input)
        else:
            _encode_output(frame, message.frames.add().output)
    if batch.grants:
        grants = message.grants
        grants.slot.extend([grant.slot for grant in batch.grants.values()])
        grants.source.extend([grant.source for grant in batch.grants.values()])
        grants.units.extend([grant.units for grant in batch.grants.values()])
        grants.bytes.extend([grant.bytes for grant in batch.grants.values()])
    return message


def decode(message: link_pb2.LinkMessage) -> list[Received]:
    """Read a message, in the order in which it is to be applied.

    Raises:
        WireFault: If columns differ in length, an end names no row, or a value is unknown.
    """
    outputs = message.outputs
    step = Received(_decode_rows(outputs) if message.HasField("outputs") else [], [], [])
    steps = [step]
    for frame in message.frames:
        kind = frame.WhichOneof("kind")
        if kind not in _ROW_FRAMES:
            step.frames.append(frame)
            continue
        if step.frames:
            step = Received([], [], [])
            steps.append(step)
        row = _decode_output(frame.output) if kind == "output" else _decode_input(frame.input)
        step.rows.append(row)
    if message.HasField("grants"):
        step.grants = _decode_grants(message.grants)
    return steps


def _encode_rows(batch: Batch, outputs: link_pb2.Outputs) -> None:
    outputs.slot.extend(batch.slots)
    outputs.lane.extend(batch.lanes)
    outputs.pos.extend(batch.positions)
    outputs.units.extend(batch.units)
    try:
        outputs.text.extend(batch.texts)
    except UnicodeEncodeError:
        # Half a surrogate pair: one request's bad text must not end everybody's link.
        del outputs.text[:]
        outputs.text.extend([_without_surrogates(text) for text in batch.texts])
    if batch.ids:
        outputs.token_ids.extend(batch.ids)
        outputs.token_ids_len.extend(batch.id_counts)
    if batch.kinds:
        outputs.kind.extend(batch.kinds)
    if batch.visible:
        outputs.visible.extend(batch.visible)
    if batch.origins:
        outputs.origin_start.extend([start for start, _ in batch.origins])
        outputs.origin_end.extend([end for _, end in batch.origins])
    for row, end in batch.ends:
        outputs.ends.add(row=row).end.CopyFrom(end_to_proto(end))
    for row in batch.segment_ends:
        outputs.ends.add(row=row, segment=True)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _encode_output(row: Row, output: link_pb2.Output) -> None:
    output.slot = row.slot
    output.lane = row.lane
    output.pos = row.pos
    output.units = row.units
    output.hidden = not row.visible
    if row.origin is not None:
        output.origin_start, output.origin_end = row.origin
    output.segment_end = row.segment_end
    if row.body is not None:
        output.body.CopyFrom(body_to_proto(row.body))
    if row.end is not None:
        output.end.CopyFrom(end_to_proto(row.end))


def _encode_input(row: Row, given: link_pb2.Input) -> None:
    given.slot = row.slot
    given.source = row.lane
    given.pos = row.pos
    given.units = row.units
    try:
        given.text = row.text
    except UnicodeEncodeError:
        given.text = _without_surrogates(row.text)
    if row.body is not None:
        given.body.CopyFrom(body_to_proto(row.body))
    given.segment_end = row.segment_end
    given.end = row.end is not None


def _decode_rows(outputs: link_pb2.Outputs) -> list[Row]:
    count = len(outputs.slot)
    _check_lengths(count, "row", outputs.lane, outputs.pos, outputs.units, outputs.text)
    slots, lanes, positions = outputs.slot, outputs.lane, outputs.pos
    if outputs.token_ids or outputs.token_ids_len:
        ids = _split_ids(count, outputs.token_ids_len, outputs.token_ids)
        rows = list(map(Row, slots, lanes, positions, outputs.units, outputs.text, ids))
    else:
        rows = list(map(Row, slots, lanes, positions, outputs.units, outputs.text))
    if outputs.kind:
        _check_lengths(count, "row", outputs.kind)
        for row, kind in zip(rows, outputs.kind, strict=True):
            row.kind = kind
    if outputs.visible:
        _check_lengths(count, "row", outputs.visible)
        for row, visible in zip(rows, outputs.visible, strict=True):
            row.visible = visible
    if outputs.origin_start or outputs.origin_end:
        _check_lengths(count, "row", outputs.origin_start, outputs.origin_end)
        origins = zip(outputs.origin_start, outputs.origin_end, strict=True)
        for row, origin in zip(rows, origins, strict=True):
            row.origin = None if origin == NO_ORIGIN else origin
    for row_end in outputs.ends:
        if row_end.row >= count:
            raise WireFault(f"an end names row {row_end.row} of {count}")
        if row_end.segment:
            rows[row_end.row].segment_end = True
        else:
            rows[row_end.row].end = _decode_end(row_end.end)
    return rows


def _split_ids(count: int, lengths: Sequence[int], flat: Iterable[int]) -> list[list[int] | None]:
    """Cut the flat column of token ids into one list a row, None where a row has none."""
    _check_lengths(count, "row", lengths)
    ids = list(flat)
    split: list[list[int] | None] = []
    start = 0
    for length in lengths:
        split.append(ids[start : start + length] if length else None)
        start += length
    if start != len(ids):
        raise WireFault(f"{len(ids)} token ids where the rows count {start}")
    return split


def _decode_output(output: link_pb2.Output) -> Row:
    try:
        body = body_from_proto(output.body)
    except MeshError as error:
        raise WireFault(f"an output has a bad body: {error}") from error
    return Row(
        output.slot,
        output.lane,
        output.pos,
        output.units,
        visible=not output.hidden,
        body=body,
        end=_decode_end(output.end) if output.HasField("end") else None,
        origin=(output.origin_start, output.origin_end) if output.origin_end else None,
        segment_end=output.segment_end,
    )


def _decode_input(given: link_pb2.Input) -> Row:
    if given.source != REQUEST_SOURCE:
        raise WireFault(f"an input names {given.source:#x}, and is none of a request")
    try:
        body = body_from_proto(given.body) if given.HasField("body") else None
    except MeshError as error:
        raise WireFault(f"an input has a bad body: {error}") from error
    return Row(
        given.slot,
        given.source,
        given.pos,
        given.units,
        given.text,
        body=body,
        end=INPUT_END if given.end else None,
        segment_end=given.segment_end,
    )


def _decode_end(end: outcome_pb2.End) -> End:
    try:
        return end_from_proto(end)
    except MeshError as error:
        raise WireFault(f"an end is not valid: {error}") from error


def _decode_grants(grants: link_pb2.Grants) -> list[Grant]:
    _check_lengths(len(grants.slot), "grant", grants.units, grants.bytes)
    sources: Iterable[int] = grants.source
    if grants.source:
        _check_lengths(len(grants.slot), "grant", grants.source)
    else:
        sources = [0] * len(grants.slot)
    return list(map(Grant, grants.slot, sources, grants.units, grants.bytes))


def _check_lengths(count: int, what: str, *columns: Sequence[object]) -> None:
    for column in columns:
        if len(column) != count:
            raise WireFault(f"a column has {len(column)} entries where there are {count} {what}s")
