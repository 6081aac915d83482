import hashlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.link.core import (
    Journal,
    LaneDigest,
    LaneJournal,
    Placed,
    Row,
    join_journals,
    split_journal,
)
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import End, FinishReason

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)


@st.composite
def lane_journals(draw: st.DrawFn, lane: int) -> LaneJournal:
    texts = draw(st.lists(st.text(max_size=30), max_size=40))
    rows = [Row(0, lane, pos, 1, text) for pos, text in enumerate(texts)]
    return LaneJournal(
        lane=lane,
        next=len(rows),
        ids=draw(st.sampled_from([[], list(range(len(rows)))])),
        digest=draw(st.binary(max_size=16)),
        end=draw(st.sampled_from([None, End(finish_reason=FinishReason.STOP)])),
        rows=rows,
        visible_pos=draw(st.integers(0, len(rows))),
    )


@st.composite
def journals(draw: st.DrawFn) -> Journal:
    placed = [
        Placed(stage=stage, role=0, attempt=1, replica_id="w", incarnation=7)
        for stage in range(draw(st.integers(0, 3)))
    ]
    return Journal(lanes=[draw(lane_journals(lane)) for lane in (TEXT, AUDIO)], placed=placed)


@given(journals(), st.integers(150, 2_000))
def test_the_parts_of_a_journal_make_the_whole_and_each_is_bounded(
    journal: Journal, bytes_max: int
) -> None:
    parts = split_journal(journal, bytes_max)
    assert all(part.size_bytes <= max(bytes_max, 2 * 200) for part in parts)
    assert join_journals(parts) == journal


def test_a_small_journal_is_one_part() -> None:
    journal = Journal(lanes=[LaneJournal(lane=TEXT, next=3, ids=[1, 2, 3])])
    assert split_journal(journal) == [journal]


def test_a_row_that_is_larger_than_a_part_has_its_own() -> None:
    rows = [
        Row(0, AUDIO, pos, 1, body=Body(inline=bytes(size))) for pos, size in enumerate((9, 999, 9))
    ]
    journal = Journal(lanes=[LaneJournal(lane=AUDIO, next=3, rows=rows)])
    parts = split_journal(journal, 400)
    assert [[row.pos for lane in part.lanes for row in lane.rows] for part in parts] == [
        [0], [1], [2],
    ]  # fmt: skip
    assert join_journals(parts) == journal


def test_parts_that_were_joined_are_left_as_they_were() -> None:
    parts = split_journal(Journal(lanes=[LaneJournal(lane=TEXT, ids=list(range(500)))]), 400)
    copies = [msgspec.structs.replace(lane) for part in parts for lane in part.lanes]
    counts = [len(lane.ids) for lane in copies]
    join_journals(parts)
    assert [len(lane.ids) for part in parts for lane in part.lanes] == counts


def test_only_a_journal_with_something_in_it_is_true() -> None:
    assert not Journal()
    assert Journal(lanes=[LaneJournal(lane=TEXT)])
    assert Journal(placed=[Placed(stage=0, role=0, attempt=1, replica_id="w", incarnation=1)])


@given(st.text(), st.integers(0, 20))
def test_a_digest_does_not_depend_on_how_text_was_cut(text: str, cut: int) -> None:
    whole, cut_up = LaneDigest(), LaneDigest()
    whole.add(Row(0, TEXT, 0, 1, text))
    for piece in (text[:cut], text[cut:]):
        cut_up.add(Row(0, TEXT, 0, 1, piece))
    wanted = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    assert whole.value == cut_up.value == wanted


def test_bytes_count_inline_or_by_the_digest_of_their_handle() -> None:
    handle = Handle(
        handle_id="h", request_id="r", holder_id="w", incarnation=1, address="a", digest=b"d" * 16
    )
    digest = LaneDigest()
    digest.add(Row(0, AUDIO, 0, 2, body=Body(inline=b"abcd")))
    digest.add(Row(0, AUDIO, 2, 1, body=Body(handle=handle)))
    assert digest.value == hashlib.blake2b(b"abcd" + b"d" * 16, digest_size=16).digest()


def test_a_digest_of_somebody_else_is_known_until_the_lane_grows() -> None:
    digest = LaneDigest(b"x" * 16)
    digest.add(Row(0, AUDIO, 5, 0))
    assert digest.value == b"x" * 16
    digest.add(Row(0, AUDIO, 5, 1, body=Body(inline=b"ab")))
    assert digest.value == b""
