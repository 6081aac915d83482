"""Journals, as messages and back: rows in columns and frames, as on a link.

A service's `translate` imports this module itself: the package's front brings gRPC along.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import Batch, Journal, LaneJournal, Outbox, Placed, Row
from stagemesh.link.pump.codec import WireFault, decode, encode
from stagemesh.outcome import error_for
from stagemesh.wire import end_from_proto, end_to_proto

__all__ = [
    "journal_from_proto",
    "journal_to_proto",
    "lane_journal_from_proto",
    "lane_journal_to_proto",
    "placed_from_proto",
    "placed_to_proto",
]

_NO_BOUND: Final = 1 << 62


def journal_to_proto(journal: Journal) -> link_pb2.Journal:
    """Encode a journal."""
    return link_pb2.Journal(
        lanes=[lane_journal_to_proto(lane) for lane in journal.lanes],
        placed=[placed_to_proto(placed) for placed in journal.placed],
        revision=journal.revision,
    )


def journal_from_proto(message: link_pb2.Journal) -> Journal:
    """Decode a journal.

    Raises:
        MeshError: With `PROTOCOL`, if it cannot be read.
    """
    return Journal(
        lanes=[lane_journal_from_proto(lane) for lane in message.lanes],
        placed=[placed_from_proto(placed) for placed in message.placed],
        revision=message.revision,
    )


def lane_journal_to_proto(lane: LaneJournal) -> link_pb2.LaneJournal:
    """Encode one lane; the ids of its rows go once, with the lane's own."""
    message = link_pb2.LaneJournal(
        lane=lane.lane,
        pos=lane.next,
        token_ids=lane.ids,
        digest=lane.digest,
        visible_pos=lane.visible_pos,
        segments=lane.segments,
        segment_pos=lane.segment_pos,
    )
    if lane.end is not None:
        message.end.CopyFrom(end_to_proto(lane.end))
    if lane.rows:
        encoded = encode(_batch(lane.rows, bare=bool(lane.ids)))
        if encoded.HasField("outputs"):
            message.rows.CopyFrom(encoded.outputs)
        message.bodies.extend(frame.output for frame in encoded.frames)
    return message


def lane_journal_from_proto(message: link_pb2.LaneJournal) -> LaneJournal:
    """Decode one lane, its rows in the order of their positions.

    Raises:
        MeshError: With `PROTOCOL`, if it cannot be read.
    """
    wrapped = link_pb2.LinkMessage(
        frames=[link_pb2.Frame(output=output) for output in message.bodies]
    )
    if message.HasField("rows"):
        wrapped.outputs.CopyFrom(message.rows)
    try:
        (step,) = decode(wrapped)
        end = end_from_proto(message.end) if message.HasField("end") else None
    except (WireFault, MeshError) as error:
        raise MeshError(
            error_for("protocol_error", f"The journal of lane {message.lane:#x}: {error}")
        ) from error
    ids = list(message.token_ids)
    # Rows without a body are apart from those with one; a bare end is the last of either.
    rows = sorted(step.rows, key=lambda row: (row.pos, row.end is not None))
    begin = message.segment_pos
    for row in rows:
        if row.units and begin <= row.pos and row.pos + row.units <= begin + len(ids):
            row.ids = ids[row.pos - begin : row.pos - begin + row.units]
    return LaneJournal(
        lane=message.lane,
        next=message.pos,
        ids=ids,
        digest=message.digest,
        end=end,
        rows=rows,
        visible_pos=message.visible_pos,
        segments=message.segments,
        segment_pos=message.segment_pos,
    )


def placed_to_proto(placed: Placed, *, slot: int = 0) -> link_pb2.Placed:
    """Encode where a role was given; outside a journal with the request's slot."""
    return link_pb2.Placed(
        slot=slot,
        stage=placed.stage,
        role=placed.role,
        attempt=placed.attempt,
        replica_id=placed.replica_id,
        incarnation=placed.incarnation,
    )


def placed_from_proto(message: link_pb2.Placed) -> Placed:
    """Decode where a role was given."""
    return Placed(
        stage=message.stage,
        role=message.role,
        attempt=message.attempt,
        replica_id=message.replica_id,
        incarnation=message.incarnation,
    )


def _batch(rows: Sequence[Row], *, bare: bool) -> Batch:
    """Put rows into one message, however large; `bare` leaves their ids out."""
    outbox = Outbox(bytes_max=_NO_BOUND, rows_max=_NO_BOUND)
    # Those without a body first, since a row after a frame of its slot would begin a new message.
    outbox.put_rows(
        msgspec.structs.replace(row, ids=None) if bare and row.ids else row
        for row in rows
        if row.body is None
    )
    outbox.put_rows(row for row in rows if row.body is not None)
    return outbox.take() or Batch()
