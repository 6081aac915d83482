import pytest

from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import (
    Journal,
    LaneJournal,
    Placed,
    Row,
    join_journals,
    split_journal,
)
from stagemesh.link.pump import journal_from_proto, journal_to_proto, placed_to_proto
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import End, FinishReason, Usage

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)
END = End(finish_reason=FinishReason.STOP, usage=Usage(completion_tokens=3))
HANDLE = Handle(
    handle_id="h_1", request_id="r", holder_id="w", incarnation=1 << 63, address="127.0.0.1:1"
)


def over_the_wire(journal: Journal) -> Journal:
    data = journal_to_proto(journal).SerializeToString()
    return journal_from_proto(link_pb2.Journal.FromString(data))


def test_a_journal_comes_back_as_it_was() -> None:
    journal = Journal(
        lanes=[
            LaneJournal(
                lane=TEXT,
                next=4,
                ids=[7, 8, 9, 10],
                end=END,
                rows=[
                    Row(3, TEXT, 0, 2, "ü😀", [7, 8], 1),
                    Row(3, TEXT, 2, 2, "x", [9, 10], visible=False),
                    Row(3, TEXT, 4, 0, " held", end=END),
                ],
                visible_pos=2,
            ),
            LaneJournal(
                lane=AUDIO,
                next=5,
                rows=[
                    Row(3, AUDIO, 0, 3, body=Body(inline=b"abcdef"), origin=(0, 2)),
                    Row(3, AUDIO, 3, 2, body=Body(handle=HANDLE)),
                    Row(3, AUDIO, 5, 0, end=END),
                ],
            ),
            LaneJournal(lane=AUDIO + 16, next=1 << 40, digest=b"d" * 16, visible_pos=1 << 40),
        ],
        placed=[Placed(stage=2, role=1, attempt=3, replica_id="w-1", incarnation=1 << 63)],
    )
    assert over_the_wire(journal) == journal


def test_ids_go_once_and_rows_have_them_back() -> None:
    rows = [Row(0, TEXT, pos, 1, "", [pos]) for pos in range(1_000)]
    with_rows = LaneJournal(lane=TEXT, next=1_000, ids=list(range(1_000)), rows=rows)
    message = journal_to_proto(Journal(lanes=[with_rows]))
    assert len(message.lanes[0].token_ids) == 1_000
    assert not message.lanes[0].rows.token_ids
    assert journal_from_proto(message).lanes[0].rows[-1].ids == [999]


def test_rows_without_ids_of_their_lane_keep_their_own() -> None:
    journal = Journal(lanes=[LaneJournal(lane=TEXT, next=1, rows=[Row(0, TEXT, 0, 1, "a", [5])])])
    assert over_the_wire(journal) == journal


def test_an_empty_journal_is_an_empty_message() -> None:
    assert journal_to_proto(Journal()) == link_pb2.Journal()
    assert not journal_from_proto(link_pb2.Journal())


def test_a_journal_that_cannot_be_read_is_a_broken_protocol() -> None:
    message = link_pb2.Journal()
    message.lanes.add(lane=TEXT).rows.slot.append(1)
    with pytest.raises(MeshError, match="lane 0x1"):
        journal_from_proto(message)
    message = link_pb2.Journal()
    message.lanes.add(lane=TEXT).end.finish_reason = 99  # type: ignore[assignment]
    with pytest.raises(MeshError):
        journal_from_proto(message)


def test_a_placement_outside_a_journal_names_the_slot_of_its_request() -> None:
    placed = Placed(stage=2, role=1, attempt=3, replica_id="w-1", incarnation=9)
    message = placed_to_proto(placed, slot=4)
    assert (message.slot, message.stage, message.replica_id) == (4, 2, "w-1")


def test_a_lane_of_runs_comes_back_with_the_ids_of_the_present_one() -> None:
    rows = [
        Row(0, TEXT, 0, 2, "ab", segment_end=True),
        Row(0, TEXT, 2, 1, "c", [9]),
    ]
    lane = LaneJournal(lane=TEXT, next=3, ids=[9], rows=rows, segments=1, segment_pos=2)
    told = Journal(lanes=[lane])
    assert journal_from_proto(journal_to_proto(told)) == told


def test_a_lane_of_runs_may_be_cut_anywhere() -> None:
    rows = [Row(0, TEXT, at, 1, "x" * 300, segment_end=at % 2 == 1) for at in range(6)]
    lane = LaneJournal(lane=TEXT, next=6, rows=rows, segments=3, segment_pos=6)
    whole = Journal(lanes=[lane])
    parts = split_journal(whole, 700)
    assert len(parts) > 1
    assert join_journals(parts) == whole
