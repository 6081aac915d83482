"""Lanes and feeds."""

from services.orchestrator.core.flow import Feed, Lane, inline_bytes
from stagemesh.link.core import Row, Window
from stagemesh.media import Body, Handle, Modality
from tests.helpers.core_stage import END


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
    """Add rows of one unit each, and count them; return by how much the unsent part grew."""
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
    assert source.trim() == -3, "nothing of it is unsent"
    assert len(source.rows) == 2, "but a refusal would ask for it again"
    to.accepted = True
    source.trim()
    assert not source.rows
    assert (source.base, source.end) == (2, 2)


def test_a_refusal_makes_what_was_sent_unsent_again() -> None:
    source = lane()
    keep(source, "ab", "c")
    to = feed(source)
    pumped(to)
    source.trim()
    source.unfed = 1
    source.feeds.remove(to)
    assert source.trim() == 3
    again = feed(source)
    source.unfed = 0
    assert [row.text for row in pumped(again)] == ["abc"]


def test_an_attempt_that_keeps_up_needs_no_journal() -> None:
    source = lane()
    to = feed(source, units=2)
    assert not to.keeps_up(), "it has not accepted yet"
    to.accepted = True
    out: list[Row] = []
    for pos in range(2):
        assert to.keeps_up()
        to.send(Row(3, 1, pos, 1, "x"), 1, 1, out)
    assert not to.keeps_up(), "its credit is spent"
    keep(source, "y")
    to.window.grant(9, 2048)
    assert not to.keeps_up(), "something waits"
    to.pump(out)
    assert [row.slot for row in out] == [5, 5, 5]
    assert source.trim() <= 0
    assert to.keeps_up()


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
