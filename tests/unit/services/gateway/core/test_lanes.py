from services.gateway.core.detached import LanePosition
from services.gateway.core.lanes import KeptLane
from stagemesh.link.core import LaneJournal, Row, Step
from stagemesh.media import Body, Modality, lane_of
from stagemesh.outcome import End, FinishReason

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)
STOP = End(finish_reason=FinishReason.STOP)


def _filled(count: int, text: str = "ab") -> KeptLane:
    lane = KeptLane(TEXT, visible=True)
    for pos in range(count):
        row = Row(9, TEXT, pos, 1, text, [pos])
        assert lane.cursor.check(row) is Step.ACCEPT
        lane.keep(row)
    return lane


def test_a_long_text_is_few_rows_of_bounded_size() -> None:
    many = _filled(1_000).export().rows
    assert [row.units for row in many] == [256, 256, 256, 232]
    assert "".join(row.text for row in many) == "ab" * 1_000
    large = _filled(20, "x" * 10_000).export().rows
    assert max(len(row.text) for row in large) < 64 * 1024 + 10_000
    assert sum(len(row.text) for row in large) == 200_000


def test_what_was_exported_does_not_change_when_the_lane_goes_on() -> None:
    lane = _filled(3)
    before = lane.export()
    row = Row(9, TEXT, 3, 1, "more", [3])
    lane.keep(row)
    assert (before.next, before.ids, [row.text for row in before.rows]) == (
        3,
        [0, 1, 2],
        ["ababab"],
    )
    assert "".join(row.text for row in lane.export().rows) == "abababmore"


def test_ids_are_given_only_if_every_position_has_one() -> None:
    lane = _filled(3)
    assert lane.export().ids == [0, 1, 2]
    size = lane.size_bytes
    lane.keep(Row(9, TEXT, 3, 2, "", [7]))
    assert lane.export().ids == []
    assert lane.size_bytes == size - 3 * 4 + 12
    lane.keep(Row(9, TEXT, 5, 1, "", [8]))
    assert (lane.export().ids, lane.next) == ([], 6)


def test_rows_with_an_origin_are_not_joined() -> None:
    lane = KeptLane(TEXT, visible=False)
    for pos in range(2):
        lane.keep(Row(9, TEXT, pos, 1, "a", origin=(pos, pos + 1)))
    assert [row.origin for row in lane.export().rows] == [(0, 1), (1, 2)]


def test_a_dropped_lane_keeps_its_position() -> None:
    lane = _filled(3)
    lane.drop()
    lane.keep(Row(9, TEXT, 3, 1, "x", [3]))
    kept = lane.export()
    assert (kept.next, kept.rows, kept.ids, kept.digest) == (4, [], [], b"")


def test_a_dropped_lane_keeps_nothing_of_later_segments_either() -> None:
    lane = _filled(3)
    lane.drop()
    size = lane.size_bytes
    for pos in range(3, 7):
        lane.keep(Row(9, TEXT, pos, 1, "x", [pos], segment_end=pos % 2 == 1))
    kept = lane.export()
    assert (kept.next, kept.segments, kept.segment_pos) == (7, 2, 6)
    assert (kept.rows, kept.ids, kept.digest) == ([], [], b"")
    assert lane.size_bytes == size


def test_sound_that_is_given_takes_no_room() -> None:
    lane = KeptLane(AUDIO, visible=True)
    for pos in range(100):
        lane.keep(Row(9, AUDIO, pos * 480, 480, body=Body(inline=bytes(960))))
    assert lane.size_bytes == 0
    assert len(lane.export().digest) == 16


def test_a_run_that_ends_is_kept_with_its_end_and_the_next_has_ids_of_its_own() -> None:
    lane = KeptLane(TEXT, visible=True)
    rows = [
        Row(1, TEXT, 0, 1, "a", [7]),
        Row(1, TEXT, 1, 1, "b", [8], segment_end=True),
        Row(1, TEXT, 2, 1, "c", [9]),
    ]
    for row in rows:
        assert lane.cursor.check(row) is Step.ACCEPT
        lane.keep(row)
    told = lane.export()
    assert (told.next, told.segments, told.segment_pos, told.ids) == (3, 1, 2, [9])
    assert [(row.text, row.segment_end) for row in told.rows] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    assert lane.size_bytes == 3 * 13 + 4


def test_the_digest_of_a_lane_is_that_of_its_present_run() -> None:
    lane = KeptLane(AUDIO, visible=True)
    body, other = Body(inline=b"xy"), Body(inline=b"z")
    lane.keep(Row(1, AUDIO, 0, 1, body=body, segment_end=True))
    lane.keep(Row(1, AUDIO, 1, 1, body=other))
    alone = KeptLane(AUDIO, visible=True)
    alone.keep(Row(1, AUDIO, 0, 1, body=other))
    assert lane.export().digest == alone.export().digest


def test_a_lane_of_which_only_its_position_is_known_goes_on_from_there() -> None:
    lane = KeptLane.begun(LanePosition(TEXT, 7))
    assert lane.cursor.check(Row(1, TEXT, 6, 1)) is Step.DROP
    row = Row(1, TEXT, 7, 2, "ab", [1, 2])
    assert lane.cursor.check(row) is Step.ACCEPT
    assert lane.keep(row) == 0
    assert lane.export() == LaneJournal(lane=TEXT, next=9, visible_pos=9)
    assert lane.size_bytes == 0


def test_a_lane_that_had_ended_takes_nothing_more() -> None:
    lane = KeptLane.begun(LanePosition(TEXT, 7, STOP))
    assert lane.export().end is STOP
    assert lane.cursor.check(Row(1, TEXT, 7, 1)) is Step.GAP
