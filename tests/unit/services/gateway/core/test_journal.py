"""What is taken of a request's outputs, and what is kept of them for another owner."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.detached import LanePosition
from services.gateway.core.journal import LANES_MAX, RequestJournal
from stagemesh.link.core import Journal, LaneJournal, Placed, Row, Step
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import End, FinishReason

ALL = (Modality.TEXT, Modality.AUDIO, Modality.IMAGE)
STOP = End(finish_reason=FinishReason.STOP)
HANDLE = Handle(
    handle_id="h", request_id="r", holder_id="w", incarnation=1, address="a", digest=b"d" * 16
)
AUDIO = lane_of(1, 0, Modality.AUDIO)
IMAGE = lane_of(2, 0, Modality.IMAGE)
HIDDEN = lane_of(7, 3, Modality.TENSOR)


def _journal(
    choices: int = 1, modalities: tuple[Modality, ...] = ALL, bytes_max: int = 10_000
) -> RequestJournal:
    return RequestJournal(choices, modalities, bytes_max=bytes_max)


def _row(
    pos: int, units: int = 1, *, stage: int = 0, role: int = 0, modality: Modality = Modality.TEXT
) -> Row:
    return Row(1, lane_of(stage, role, modality), pos, units)


def _picture(pos: int = 0) -> Row:
    return Row(1, IMAGE, pos, 1, body=Body(handle=HANDLE))


def test_a_journal_keeps_the_revision_that_it_was_begun_under() -> None:
    journal = _journal()
    journal.opened("r1")
    assert journal.goes_on_at("r2")
    journal.opened("r2")
    journal.take(_row(0))
    journal.opened("r3")
    assert journal.export().revision == "r2"
    assert [journal.goes_on_at(revision) for revision in ("r1", "r2", "r3")] == [False, True, False]


def test_each_lane_has_a_cursor_of_its_own() -> None:
    journal = _journal(2)
    rows = [_row(0, 2), _row(0, role=1), _row(0, 7, stage=1, modality=Modality.AUDIO), _row(2)]
    assert [journal.take(row) for row in rows] == [Step.ACCEPT] * 4
    assert journal.take(_row(1)) is Step.DROP
    assert journal.take(_row(4)) is Step.GAP
    assert journal.expected(_row(0).lane) == 3


def test_lanes_that_were_not_asked_for_are_wrong_unless_they_are_hidden() -> None:
    journal = _journal(2, (Modality.TEXT,))
    assert journal.take(_row(0, role=2)) is Step.GAP
    assert journal.take(_row(0, modality=Modality.AUDIO)) is Step.GAP
    assert journal.expected(_row(0, role=2).lane) == 0
    hidden = _row(0, role=2)
    hidden.visible = False
    assert journal.take(hidden) is Step.ACCEPT


@pytest.mark.invariant("ENTRY-INV-101")
def test_a_choice_has_one_visible_lane_of_a_modality() -> None:
    journal = _journal()
    hidden = Row(1, lane_of(5, 0, Modality.TEXT), 0, 1, visible=False)
    assert journal.take(hidden) is Step.ACCEPT
    assert journal.take(_row(0)) is Step.ACCEPT
    assert journal.take(_row(0, stage=1)) is Step.GAP


def test_a_lane_is_hidden_for_good_or_not_at_all() -> None:
    journal = _journal()
    journal.take(_row(0))
    hidden = _row(1)
    hidden.visible = False
    assert journal.take(hidden) is Step.GAP


@pytest.mark.invariant("ENTRY-INV-101")
def test_nothing_comes_after_the_end_of_a_lane() -> None:
    journal = _journal()
    last = _row(0)
    last.end = STOP
    assert journal.take(last) is Step.ACCEPT
    assert journal.take(_row(1)) is Step.GAP


def test_the_number_of_lanes_is_bounded() -> None:
    journal = _journal()
    for role in range(LANES_MAX):
        assert journal.take(Row(1, lane_of(9, role, Modality.TEXT), 0, 1, visible=False)) is (
            Step.ACCEPT
        )
    assert journal.take(_row(0)) is Step.GAP


def test_a_journal_of_nothing_is_empty() -> None:
    assert _journal().export() == Journal()


def test_text_and_hidden_rows_are_kept_and_of_the_rest_a_digest() -> None:
    journal = _journal()
    journal.take(Row(1, 1, 0, 2, "ab", [5, 6]))
    journal.take(Row(1, 1, 2, 1, "c", [7], end=STOP))
    for pos in range(3):
        journal.take(Row(1, AUDIO, pos * 2, 2, body=Body(inline=b"abcd")))
        journal.take(Row(1, HIDDEN, pos, 1, body=Body(inline=b"t%d" % pos), visible=False))
    text, audio, hidden = journal.export().lanes
    assert (text.next, text.visible_pos, text.ids, text.end) == (3, 3, [5, 6, 7], STOP)
    assert text.rows == [Row(0, 1, 0, 3, "abc", end=STOP)]
    assert (audio.next, audio.visible_pos, audio.rows) == (6, 6, [])
    assert audio.digest == hashlib.blake2b(b"abcd" * 3, digest_size=16).digest()
    assert (hidden.next, hidden.visible_pos, hidden.digest) == (3, 0, b"")
    assert [row.body and row.body.inline for row in hidden.rows] == [b"t0", b"t1", b"t2"]
    assert not any(row.visible for row in hidden.rows)


def test_what_is_behind_a_handle_is_not_delivered_before_it_is_fetched() -> None:
    journal = _journal()
    end = Row(1, IMAGE, 1, 0, end=STOP)
    assert [journal.take(row) for row in (_picture(), end)] == [Step.ACCEPT] * 2
    assert (journal.waiting, journal.waits(IMAGE)) == (2, True)
    (lane,) = journal.export().lanes
    assert (lane.next, lane.end) == (0, None)
    journal.deliver(_picture())
    assert journal.export().lanes[0].next == 1
    journal.deliver(end)
    (lane,) = journal.export().lanes
    assert (lane.next, lane.end, journal.waiting, journal.waits(IMAGE)) == (1, STOP, 0, False)
    assert lane.digest == hashlib.blake2b(b"d" * 16, digest_size=16).digest()


def test_bytes_that_are_lost_come_again_and_what_is_beyond_them_does_not_count() -> None:
    journal = _journal()
    journal.take(_picture(0))
    journal.take(_picture(1))
    journal.take_back(IMAGE)
    assert journal.waiting == 0
    assert journal.take(_picture(2)) is Step.DROP
    assert journal.take(_picture(0)) is Step.ACCEPT
    assert journal.take(_picture(2)) is Step.GAP


def test_a_hidden_handle_is_kept_as_it_is() -> None:
    journal = _journal()
    journal.take(Row(1, HIDDEN, 0, 1, body=Body(handle=HANDLE), visible=False))
    (lane,) = journal.export().lanes
    assert (lane.next, journal.waiting) == (1, 0)
    assert lane.rows[0].body == Body(handle=HANDLE)


def test_the_next_owner_gives_again_whatever_waits() -> None:
    journal = _journal()
    journal.take(_picture(0))
    journal.take(Row(1, IMAGE, 1, 0, end=STOP))
    journal.take_all_back()
    assert journal.waiting == 0
    assert journal.take(_picture(0)) is Step.ACCEPT


def test_lanes_of_stages_that_start_again_begin_at_0_if_nothing_of_them_was_delivered() -> None:
    journal = _journal()
    journal.take(Row(1, HIDDEN, 0, 5, body=Body(inline=b"x"), visible=False))
    journal.take(_row(0))
    size = journal.size_bytes
    assert journal.reset({7})
    assert journal.size_bytes < size
    assert journal.expected(HIDDEN) == 0
    assert not journal.reset({0})


def test_above_its_bound_a_journal_keeps_positions_only() -> None:
    journal = _journal(bytes_max=100)
    journal.take(Row(1, 1, 0, 1, "x" * 70_000, [1]))
    assert not journal.recoverable
    assert journal.take(Row(1, 1, 1, 1, "y", [2])) is Step.ACCEPT
    journal.take(Row(1, HIDDEN, 0, 1, body=Body(inline=b"x"), visible=False))
    assert [(lane.next, lane.rows, lane.ids) for lane in journal.export().lanes] == [
        (2, [], []),
        (1, [], []),
    ]
    journal.reset({7})
    assert not journal.recoverable


def test_the_last_place_of_each_role_is_kept() -> None:
    journal = _journal()
    for attempt in (1, 2):
        journal.place(Placed(stage=1, role=0, attempt=attempt, replica_id="w", incarnation=attempt))
    journal.place(Placed(stage=2, role=0, attempt=1, replica_id="v", incarnation=3))
    assert [(one.stage, one.attempt) for one in journal.export().placed] == [(1, 2), (2, 1)]


@given(st.lists(st.tuples(st.text(max_size=4), st.integers(0, 3), st.sampled_from([0, 1]))))
def test_text_is_kept_to_the_letter_however_it_came(pieces: list[tuple[str, int, int]]) -> None:
    journal = _journal(bytes_max=10**6)
    pos = 0
    for text, units, kind in pieces:
        row = Row(1, 1, pos, units, text, list(range(pos, pos + units)) or None, kind)
        assert journal.take(row) is Step.ACCEPT
        pos += units
    if not pieces:
        return
    (lane,) = journal.export().lanes
    for kind in (0, 1):
        kept = "".join(row.text for row in lane.rows if row.kind == kind)
        assert kept == "".join(text for text, _, one in pieces if one == kind)
    assert lane.ids == list(range(pos))
    beyond = 0
    for row in lane.rows:
        assert row.pos == beyond
        beyond += row.units
    assert beyond == lane.next == pos


def _begun(*lanes: LanePosition, revision: str = "r1") -> RequestJournal:
    return RequestJournal(1, ALL, bytes_max=20, begun=lanes, revision=revision)


def test_of_what_another_gateway_had_only_positions_are_kept_however_long_it_gets() -> None:
    text = lane_of(0, 0, Modality.TEXT)
    journal = _begun(LanePosition(text, 3))
    rows = [Row(1, text, 3 + at, 1, "word", [at]) for at in range(1_000)]
    assert {journal.take(row) for row in rows} == {Step.ACCEPT}
    assert journal.take(_picture()) is Step.ACCEPT
    journal.deliver(_picture())
    journal.place(Placed(stage=0, role=0, attempt=1, replica_id="w", incarnation=1))
    assert journal.export() == Journal(
        lanes=[
            LaneJournal(lane=text, next=1_003, visible_pos=1_003),
            LaneJournal(lane=IMAGE, next=1, visible_pos=1),
        ],
        revision="r1",
    )
    assert journal.recoverable
    assert journal.size_bytes == 0


def test_who_only_knows_positions_takes_no_hidden_row() -> None:
    hidden = _row(0)
    hidden.visible = False
    assert _begun().take(hidden) is Step.GAP
    assert _journal().take(hidden) is Step.ACCEPT


def test_of_what_another_gateway_had_something_began_or_any_revision_will_do() -> None:
    assert _begun().goes_on_at("r2")
    assert _begun().revision_at("r2") == "r2"
    begun = _begun(LanePosition(AUDIO, 5))
    assert [begun.goes_on_at(revision) for revision in ("r1", "r2")] == [True, False]
    assert begun.revision_at("r2") == "r1"
