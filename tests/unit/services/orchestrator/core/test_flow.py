"""Lanes and feeds."""

from services.orchestrator.core.feeds import Feed
from services.orchestrator.core.flow import Lane, inline_bytes
from services.orchestrator.core.starting import leave_segments
from stagemesh.link.core import Row, Window
from stagemesh.media import Body, Handle, Modality
from tests.helpers.core_stage import END, CoreStage, make_request


def lane(*, visible: bool = False, unfed: int = 0) -> Lane:
    return Lane(number=1, modality=Modality.TEXT, visible=visible, direct=False, unfed=unfed)


def feed(to: Lane, *, units: int = 64, size: int = 1024, paces: bool = True) -> Feed:
    made = Feed(
        lane=to,
        link=9,
        slot=5,
        window=Window(units, size),
        join_units_max=max(1, units // 2),
        paces=paces,
        next=to.base,
    )
    to.feeds.append(made)
    return made


def keep(to: Lane, *texts: str, end: bool = False) -> int:
    """Add rows of one unit each, and count them; return by how much what is kept grew."""
    grown = 0
    for at, text in enumerate(texts):
        row = Row(3, 1, to.cursor.next, 1, text, end=END if end and at == len(texts) - 1 else None)
        to.cursor.check(row)
        to.taken_units += 1
        to.taken_bytes += len(text)
        grown += to.keep(row)
    return grown


def pumped(source: Feed) -> list[Row]:
    out: list[Row] = []
    source.pump(out)
    return out


def test_what_waited_is_joined_for_the_attempt_and_left_alone_in_the_journal() -> None:
    source = lane()
    keep(source, "a", "b", "c", end=True)
    to = feed(source)
    (row,) = pumped(to)
    assert (row.slot, row.pos, row.units, row.text) == (5, 0, 3, "abc")
    assert row.end is END
    assert to.complete
    assert [(kept.slot, kept.text) for kept in source.rows] == [(3, "a"), (3, "b"), (3, "c")]


def test_ids_are_joined_beside_the_text() -> None:
    source = lane()
    for pos in range(3):
        source.keep(Row(3, 1, pos, 1, "x", ids=[pos]))
    (row,) = pumped(feed(source))
    assert row.ids == [0, 1, 2]
    assert source.rows[0].ids == [0]


def test_rows_of_another_kind_or_with_a_body_are_not_joined() -> None:
    source = lane()
    for row in (
        Row(3, 1, 0, 1, "a"),
        Row(3, 1, 1, 1, "b", kind=1),
        Row(3, 1, 2, 1, body=Body(inline=b"c")),
        Row(3, 1, 3, 1, body=Body(inline=b"d")),
        Row(3, 1, 4, 1, "e", ids=[1]),
    ):
        source.keep(row)
    assert [row.pos for row in pumped(feed(source))] == [0, 1, 2, 3, 4]


def test_no_more_is_joined_than_half_a_window() -> None:
    source = lane()
    keep(source, *"abcdef")
    rows = pumped(feed(source, units=4))
    assert [row.text for row in rows] == ["ab", "cd"]


def test_without_credit_nothing_goes_but_a_bare_end_does() -> None:
    source = lane()
    to = feed(source, units=1)
    keep(source, "a", "b")
    assert [row.text for row in pumped(to)] == ["a"]
    to.window.grant(2, 2048)
    assert [row.text for row in pumped(to)] == ["b"]
    source.keep(Row(3, 1, 2, 0, end=END))
    (end,) = pumped(to)
    assert end.end is END


def test_rows_are_kept_until_every_reader_runs_and_has_accepted() -> None:
    source = lane(unfed=1)
    assert keep(source, "ab", "c") == 3
    assert source.trim() == 0
    source.unfed = 0
    to = feed(source)
    pumped(to)
    assert source.trim() == 0, "a refusal would ask for it again"
    to.accepted = True
    assert source.trim() == -3
    assert not source.rows
    assert (source.base, source.end) == (2, 2)
    assert not source.held, "nobody can be sent all of it any more"


def test_rows_are_kept_for_whoever_may_have_to_be_sent_them_again() -> None:
    source = lane()
    source.keepers = 1
    keep(source, "ab", "c")
    to = feed(source)
    to.accepted = True
    pumped(to)
    assert source.trim() == 0
    source.feeds.remove(to)
    assert [row.text for row in pumped(feed(source))] == ["abc"], "it gets everything again"
    source.keepers = 0
    source.feeds[0].accepted = True
    assert source.trim() == -3


def test_an_attempt_that_keeps_up_is_sent_each_row_as_it_is() -> None:
    source = lane()
    to = feed(source, units=2)
    out: list[Row] = []
    for text in "ab":
        keep(source, text)
        assert to.keeps_up()
        to.send(source.rows[-1], out)
    keep(source, "c")
    assert not to.keeps_up(), "its credit is spent"
    keep(source, "d")
    to.window.grant(9, 2048)
    assert not to.keeps_up(), "something waits before it"
    to.pump(out)
    assert [(row.slot, row.text) for row in out] == [(5, "a"), (5, "b"), (5, "c"), (5, "d")]
    assert (to.sent_units, to.sent_bytes) == (4, 4)


def test_rows_that_everybody_was_sent_are_packed_and_nobody_loses_its_place() -> None:
    source = lane()
    source.keepers = 1
    quick, slow = feed(source), feed(source, units=1)
    keep(source, *"a" * 40)
    pumped(quick)
    pumped(slow)
    source.pack()
    assert len(source.rows) == 40, "one has not been sent all of it"
    slow.window.grant(100, 2048)
    pumped(slow)
    source.pack()
    assert [row.units for row in source.rows] == [32, 8]
    assert source.size_bytes == 40
    keep(source, "b", end=True)
    assert [row.text for row in pumped(quick) + pumped(slow)] == ["b", "b"]
    assert quick.complete
    assert slow.complete
    late = feed(source, units=100)
    assert "".join(row.text for row in pumped(late)) == "a" * 40 + "b"


def test_what_is_read_piece_by_piece_is_not_packed() -> None:
    source = lane()
    source.keepers = 1
    source.packs = False
    keep(source, *"a" * 40)
    pumped(feed(source))
    source.pack()
    assert len(source.rows) == 40
    assert source.index_at(7) == 7
    assert source.index_at(99) is None


def test_a_feed_may_begin_in_the_middle_as_if_it_had_been_sent_the_rest() -> None:
    source = lane()
    source.keepers = 1
    keep(source, "ab", "c", "d")
    to = feed(source)
    to.skip_to(2)
    assert (to.sent_units, to.sent_bytes) == (2, 3)
    (row,) = pumped(to)
    assert (row.pos, row.text) == (2, "d")


def test_a_row_inside_a_joined_one_is_no_place_to_begin() -> None:
    source = lane()
    source.keep(Row(3, 1, 0, 3, "abc"))
    assert source.index_at(1) is None


def test_a_lane_that_is_cut_counts_what_was_cut_no_more() -> None:
    source = lane(unfed=1)
    keep(source, "ab", "c", end=True)
    source.settle()
    source.cut(1)
    assert (source.cursor.next, source.cursor.ended, source.closed) == (1, False, False)
    assert (source.taken_units, source.settled_units, source.size_bytes) == (1, 1, 2)
    keep(source, "d", end=True)
    assert source.closed
    assert source.settle() == (1, 1)


def test_a_lane_that_is_reset_is_as_new() -> None:
    source = lane(unfed=1)
    keep(source, "ab", end=True)
    source.settle()
    source.reset()
    assert (source.begun, source.end, source.held) == (False, 0, True)
    assert source.unsettled == (0, 0)


def test_nobody_gets_credit_for_what_an_older_attempt_sent() -> None:
    source = lane(unfed=1)
    slow = feed(source, units=1)
    keep(source, "a", "b", "c")
    pumped(slow)
    source.settle()
    assert source.unsettled == (2, 2)
    source.begin_attempt()
    keep(source, "d")
    slow.window.grant(9, 2048)
    pumped(slow)
    assert source.earned(*source.settle()) == (1, 1), "of three that were settled, one is its own"


def test_a_hidden_lane_without_a_pacing_reader_is_settled_as_it_comes() -> None:
    source = lane(unfed=1)
    keep(source, "ab")
    assert source.settle() == (1, 2)
    assert source.settle() == (0, 0)
    feed(source, paces=False)
    keep(source, "c")
    assert source.settle() == (1, 1)


def test_a_lane_is_settled_as_far_as_its_slowest_pacing_reader() -> None:
    source = lane()
    quick, slow = feed(source), feed(source, units=1)
    keep(source, "a", "b")
    pumped(quick)
    pumped(slow)
    assert source.settle() == (1, 1)
    slow.window.grant(2, 2048)
    pumped(slow)
    assert source.settle() == (1, 1)


def test_a_visible_lane_is_settled_when_the_client_and_the_reader_have_it() -> None:
    source = lane(visible=True)
    to = feed(source)
    keep(source, "a")
    pumped(to)
    assert source.settle() == (0, 0)
    source.passed_units += 1
    source.passed_bytes += 1
    assert source.settle() == (1, 1)


def test_a_reader_that_starts_later_takes_no_credit_back() -> None:
    source = lane(unfed=1)
    keep(source, "a", "b")
    assert source.settle() == (2, 2)
    feed(source)
    assert source.settle() == (0, 0)
    assert source.settled_units == 2


def test_a_handle_takes_no_memory_here() -> None:
    handle = Handle(
        handle_id="h", request_id="", holder_id="", incarnation=1, address="", size_bytes=1 << 30
    )
    assert inline_bytes(Row(1, 1, 0, 1, body=Body(handle=handle))) == 0
    assert inline_bytes(Row(1, 1, 0, 1, "ab", ids=[1, 2], body=Body(inline=b"xyz"))) == 13


def segmented(*texts: str) -> Lane:
    """Make a lane whose every row but the last ends a segment."""
    made = lane()
    for at, text in enumerate(texts):
        made.keep(Row(3, 1, at, 1, text, segment_end=at < len(texts) - 1))
    return made


def test_segments_are_found_by_their_ends() -> None:
    source = segmented("a", "b", "c")
    assert source.segments_there == 2
    assert [source.segment_start(number) for number in range(4)] == [0, 1, 2, 3]
    assert [source.segment_stop(number) for number in range(2)] == [1, 2]
    source.keep(Row(3, 1, 3, 0, end=END))
    assert (source.segments_there, source.closed) == (3, True)


def test_a_bare_end_behind_a_segment_is_no_segment_and_alone_it_is_one() -> None:
    source = lane()
    source.keep(Row(3, 1, 0, 1, "a", segment_end=True))
    source.keep(Row(3, 1, 1, 0, end=END))
    assert (source.segments_there, source.closed) == (1, True)
    silent = lane()
    silent.keep(Row(3, 1, 0, 0, end=END))
    assert silent.segments_there == 1


def test_a_feed_of_one_segment_gives_it_as_if_it_were_the_lane() -> None:
    source = segmented("a", "b", "c")
    to = feed(source)
    to.next, to.stop, to.shift = 1, 2, 1
    assert not to.starved
    (row,) = pumped(to)
    assert (row.pos, row.text, row.segment_end) == (0, "b", False)
    assert row.end is not None
    assert to.complete
    assert not to.keeps_up()
    assert source.rows[1].segment_end, "the lane's own row is left alone"


def test_rows_of_two_segments_are_not_joined() -> None:
    rows = pumped(feed(segmented("a", "b", "c")))
    assert [(row.text, row.segment_end) for row in rows] == [("a", True), ("b", True), ("c", False)]


def test_those_who_read_by_segments_keep_their_present_one_only() -> None:
    stage = CoreStage()
    stage.converse(make_request("turns"))
    (request,) = stage.core._state.requests.values()
    listener, mixer = request.groups
    source = listener.lanes[0]
    assert source.by_segment == [mixer]
    for at in range(3):
        source.keep(Row(3, source.number, at, 1, "a", segment_end=True))
    assert source.trim() == 0
    mixer.lanes[0].next_run()
    assert source.trim() == -1
    assert (source.base, source.segment_start(1), source.segments_there) == (1, 1, 3)
    mixer.lanes[0].next_run()
    mixer.lanes[0].next_run()
    source.trim()
    assert (source.base, len(source.marks), source.segments_there) == (3, 1, 3)
    assert source.segment_start(3) == 3
    leave_segments(mixer)
    assert not source.by_segment
