import pytest

from stagemesh.link.core import Batch, Grant, Outbox, Row
from stagemesh.link.core.outbox import MESSAGE_FRAMES_MAX
from stagemesh.media import Body, Modality, lane_of
from stagemesh.outcome import End, FinishReason

LANE = lane_of(0, 0, Modality.TEXT)
STOP = End(finish_reason=FinishReason.STOP)


def row(slot: int, pos: int = 0, text: str = "x") -> Row:
    return Row(slot, LANE, pos, 1, text)


def drain(outbox: Outbox) -> list[Batch]:
    batches = []
    while (batch := outbox.take()) is not None:
        batches.append(batch)
    return batches


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def test_an_empty_outbox_has_nothing_to_take(outbox: Outbox) -> None:
    assert outbox.take() is None
    outbox.put_rows([])
    assert outbox.take() is None
    assert outbox.waiting_bytes == 0


def test_rows_of_many_slots_are_one_message_in_columns(outbox: Outbox) -> None:
    outbox.put_rows([row(1, 4, "a"), row(2, 7, "b")])
    outbox.put_rows([row(3, 9, "c")])
    [batch] = drain(outbox)
    assert batch.slots == [1, 2, 3]
    assert batch.lanes == [LANE] * 3
    assert batch.positions == [4, 7, 9]
    assert batch.units == [1, 1, 1]
    assert batch.texts == ["a", "b", "c"]
    assert (batch.ids, batch.id_counts, batch.kinds, batch.visible) == ([], [], [], [])


def test_rare_columns_are_filled_from_the_first_row_that_needs_them(outbox: Outbox) -> None:
    outbox.put_rows(
        [
            row(1),
            Row(2, LANE, 0, 2, "", [8, 9]),
            Row(3, LANE, 0, 1, "t", None, 1),
            Row(4, LANE, 0, 1, "t", None, 0, False),
            Row(5, LANE, 0, 1, "t", [4], end=STOP),
        ]
    )
    [batch] = drain(outbox)
    assert (batch.ids, batch.id_counts) == ([8, 9, 4], [0, 2, 0, 0, 1])
    assert batch.kinds == [0, 0, 1, 0, 0]
    assert batch.visible == [True, True, True, False, True]
    assert batch.ends == [(4, STOP)]


def test_a_frame_closes_the_message_before_a_later_row_of_its_slot(outbox: Outbox) -> None:
    outbox.put_rows([row(1, 0)])
    outbox.put_frame("reset", (1,))
    outbox.put_rows([row(2, 0)])
    outbox.put_rows([row(1, 1)])
    first, second = drain(outbox)
    assert (first.slots, first.frames) == ([1, 2], ["reset"])
    assert (second.slots, second.frames) == ([1], [])


def test_a_burst_of_frames_each_followed_by_rows_makes_two_messages(outbox: Outbox) -> None:
    for slot in range(1, MESSAGE_FRAMES_MAX + 1):
        outbox.put_frame(f"submit {slot}", (slot,))
        outbox.put_rows([row(slot)])
    first, second = drain(outbox)
    assert first.frames == [f"submit {slot}" for slot in range(1, MESSAGE_FRAMES_MAX + 1)]
    assert second.slots == list(range(1, MESSAGE_FRAMES_MAX + 1))
    assert first.slots == second.frames == []


def test_a_frame_is_not_put_before_earlier_rows_of_its_slot(outbox: Outbox) -> None:
    outbox.put_frame("a", (1,))
    outbox.put_rows([row(1), row(2)])
    outbox.put_frame("end of 2", (2,))
    first, second = drain(outbox)
    assert (first.frames, second.slots, second.frames) == (["a"], [1, 2], ["end of 2"])


def test_a_frame_is_not_put_before_earlier_frames(outbox: Outbox) -> None:
    outbox.put_frame("a", (1,))
    outbox.put_rows([row(1)])
    outbox.put_frame("b", (1,))
    outbox.put_frame("c", (3,))
    assert [batch.frames for batch in drain(outbox)] == [["a"], ["b", "c"]]


def test_a_row_with_a_body_is_a_frame_of_its_slot(outbox: Outbox) -> None:
    chunk = Row(1, LANE, 0, 1, body=Body(inline=b"pcm"))
    outbox.put_rows([row(1), chunk, row(1, 1), row(2)])
    first, second = drain(outbox)
    assert (first.slots, first.frames, second.slots) == ([1], [chunk], [1, 2])


def test_a_frame_without_slots_closes_nothing(outbox: Outbox) -> None:
    outbox.put_frame("ping")
    outbox.put_rows([row(1)])
    [batch] = drain(outbox)
    assert (batch.frames, batch.slots) == (["ping"], [1])


def test_a_later_grant_takes_the_place_of_an_earlier_one(outbox: Outbox) -> None:
    outbox.put_grants([Grant(1, 0, 10, 100), Grant(1, 5, 1, 1)])
    outbox.put_grants([Grant(1, 0, 20, 200)])
    [batch] = drain(outbox)
    assert list(batch.grants.values()) == [Grant(1, 0, 20, 200), Grant(1, 5, 1, 1)]


def test_a_message_is_bounded_by_rows() -> None:
    outbox = Outbox(rows_max=3)
    outbox.put_rows([row(slot) for slot in range(7)])
    assert [len(batch.slots) for batch in drain(outbox)] == [3, 3, 1]


def test_a_message_is_bounded_by_bytes() -> None:
    outbox = Outbox(bytes_max=1000)
    outbox.put_rows([row(slot, 0, "y" * 300) for slot in range(5)])
    outbox.put_frame("big", (9,), 900)
    outbox.put_grants([Grant(slot, 0, 1, 1) for slot in range(50)])
    batches = drain(outbox)
    assert all(batch.size_bytes <= 1000 for batch in batches)
    assert [len(batch.slots) for batch in batches][:2] == [3, 2]
    assert sum(len(batch.grants) for batch in batches) == 50


def test_what_is_larger_than_a_message_goes_alone() -> None:
    outbox = Outbox(bytes_max=1000)
    outbox.put_rows([row(1), row(2, 0, "z" * 5000), row(3)])
    outbox.put_frame("huge", (4,), 9000)
    assert [len(batch.slots) for batch in drain(outbox)] == [1, 1, 1, 0]


def test_what_waits_is_counted_until_it_is_taken() -> None:
    outbox = Outbox(rows_max=2)
    outbox.put_rows([row(slot) for slot in range(5)])
    outbox.put_frame("f", (9,), 40)
    waiting = outbox.waiting_bytes
    batches = drain(outbox)
    assert waiting == sum(batch.size_bytes for batch in batches)
    assert outbox.waiting_bytes == 0


def test_rows_are_copied_so_their_owner_may_reuse_them(outbox: Outbox) -> None:
    one = row(1)
    outbox.put_rows([one])
    one.slot = 2
    outbox.put_rows([one])
    [batch] = drain(outbox)
    assert batch.slots == [1, 2]


def test_a_burst_of_frames_is_cut_so_that_its_reader_can_turn_to_others(outbox: Outbox) -> None:
    for number in range(2 * MESSAGE_FRAMES_MAX + 1):
        outbox.put_frame(number, (number,))
    cut = [batch.frames for batch in drain(outbox)]
    assert [len(frames) for frames in cut] == [MESSAGE_FRAMES_MAX, MESSAGE_FRAMES_MAX, 1]
    assert [number for frames in cut for number in frames] == [*range(2 * MESSAGE_FRAMES_MAX + 1)]


def test_rows_with_bodies_of_one_step_stay_one_message(outbox: Outbox) -> None:
    rows = [row(slot) for slot in range(1, 4 * MESSAGE_FRAMES_MAX)]
    for one in rows:
        one.body = Body(inline=b"xy")
    outbox.put_rows(rows)
    [batch] = drain(outbox)
    assert batch.frames == rows


def test_frames_that_go_before_rows_are_cut_too_and_keep_their_order(outbox: Outbox) -> None:
    slots = range(1, MESSAGE_FRAMES_MAX + 6)
    for slot in slots:
        outbox.put_frame(slot, (slot,))
        outbox.put_rows([row(slot)])
    told: list[tuple[str, int]] = []
    for batch in drain(outbox):
        assert len(batch.frames) <= MESSAGE_FRAMES_MAX
        told += [("row", slot) for slot in batch.slots]
        told += [("frame", slot) for slot in batch.frames]
    for slot in slots:
        assert told.index(("frame", slot)) < told.index(("row", slot))
    assert [slot for kind, slot in told if kind == "frame"] == [*slots]
