from stagemesh.link.core import Meter, Row, Sender, Window
from stagemesh.media import Body, Modality, lane_of
from stagemesh.outcome import End, FinishReason

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)
STOP = End(finish_reason=FinishReason.STOP)


def row(pos: int, units: int = 1, text: str = "x", **more: object) -> Row:
    return Row(5, TEXT, pos, units, text, **more)  # type: ignore[arg-type]


def test_a_window_is_open_while_both_sums_are_above_zero() -> None:
    window = Window(2, 10)
    window.spend(1, 9)
    assert window.open
    window.spend(0, 1)
    assert not window.open


def test_one_thing_may_overrun_a_window() -> None:
    window = Window(1, 10)
    window.spend(50, 500)
    window.grant(51, 510)
    assert window.open


def test_units_alone_can_shut_a_window() -> None:
    window = Window(1, 100)
    window.spend(1, 0)
    assert not window.open


def test_an_older_total_changes_nothing() -> None:
    window = Window(4, 100)
    window.spend(4, 4)
    window.grant(8, 200)
    window.spend(3, 3)
    window.grant(6, 150)
    assert window.open
    window.spend(1, 1)
    assert not window.open


def test_a_row_goes_at_once_while_there_is_credit() -> None:
    sender = Sender(2, 100)
    first = row(0)
    assert sender.offer(first) == [first]
    assert (sender.held_units, sender.held_bytes) == (0, 0)


def test_without_credit_rows_wait_and_join() -> None:
    sender = Sender(8, 100)
    sender.offer(row(0, 8))
    assert sender.offer(row(8, text="a", ids=[1])) == []
    assert sender.offer(row(9, text="b", ids=[2], end=STOP)) == []
    assert (sender.held_units, sender.held_bytes) == (2, 10)
    assert sender.grant(16, 200) == [row(8, 2, "ab", ids=[1, 2], end=STOP)]
    assert (sender.held_units, sender.held_bytes) == (0, 0)


def test_joining_leaves_the_rows_that_were_offered_as_they_were() -> None:
    sender = Sender(8, 100)
    sender.offer(row(0, 8))
    first, second = row(8, text="a", ids=[1]), row(9, text="b", ids=[2])
    sender.offer(first)
    sender.offer(second)
    assert (first, second) == (row(8, text="a", ids=[1]), row(9, text="b", ids=[2]))


def test_rows_of_another_kind_lane_or_visibility_do_not_join() -> None:
    sender = Sender(8, 100)
    sender.offer(row(0, 8))
    waiting = [
        row(8),
        row(9, kind=1),
        row(10, kind=1, visible=False),
        Row(5, AUDIO, 11, 1, "x"),
        row(12, end=STOP),
        row(13),
    ]
    for one in waiting:
        sender.offer(one)
    assert sender.grant(100, 1000) == waiting


def test_a_row_with_a_body_never_joins() -> None:
    sender = Sender(8, 100)
    sender.offer(row(0, 8))
    waiting = [row(8), row(9, body=Body(inline=b"z")), row(10)]
    for one in waiting:
        sender.offer(one)
    assert sender.grant(100, 1000) == waiting


def test_joined_rows_stay_within_half_a_window() -> None:
    sender = Sender(8, 1000)
    sender.offer(row(0, 8))
    for pos in range(8, 17):
        sender.offer(row(pos))
    assert [one.units for one in sender.grant(100, 1000)] == [4, 4, 1]


def test_a_grant_releases_as_much_as_it_pays_for() -> None:
    sender = Sender(2, 100)
    sender.offer(row(0, 2))
    for pos in range(2, 6):
        sender.offer(row(pos))
    assert [one.pos for one in sender.grant(4, 100)] == [2, 3]
    assert sender.held_units == 2


def test_a_bare_end_needs_no_credit_but_does_not_overtake() -> None:
    sender = Sender(1, 100)
    sender.offer(row(0))
    end = row(1, 0, "", end=STOP)
    assert sender.offer(end) == [end]
    sender = Sender(1, 100)
    sender.offer(row(0))
    sender.offer(Row(5, AUDIO, 0, 1, "x"))
    assert sender.offer(end) == []
    assert sender.grant(2, 200) == [Row(5, AUDIO, 0, 1, "x"), end]


def test_a_grant_is_due_at_half_a_window() -> None:
    meter = Meter(8, 1000)
    assert meter.took(3, 30) is None
    assert meter.took(1, 10) == (12, 1040)
    assert meter.took(3, 30) is None
    assert meter.took(1, 10) == (16, 1080)


def test_bytes_alone_make_a_grant_due() -> None:
    assert Meter(8, 1000).took(0, 500) == (8, 1500)


def test_a_window_of_one_is_granted_for_each_unit() -> None:
    meter = Meter(1, 1)
    assert meter.took(0, 0) is None
    assert meter.took(1, 1) == (2, 2)


def test_what_waits_can_be_given_whatever_the_credit_and_then_nothing_waits() -> None:
    sender = Sender(1, 1000)
    assert sender.offer(row(0))
    assert not sender.offer(row(1))
    assert [one.pos for one in sender.release()] == [1]
    assert (sender.held_units, sender.held_bytes) == (0, 0)
    assert sender.release() == []


def test_text_is_not_joined_across_the_end_of_a_segment() -> None:
    sender = Sender(1, 100)
    sender.offer(Row(1, TEXT, 0, 1, "a"))
    sender.offer(Row(1, TEXT, 1, 1, "b", segment_end=True))
    sender.offer(Row(1, TEXT, 2, 1, "c"))
    rows = sender.grant(100, 1000)
    assert [(row.text, row.segment_end) for row in rows] == [("b", True), ("c", False)]


def test_where_credit_confirms_each_step_is_granted_and_nothing_is_no_step() -> None:
    meter = Meter(8, 1000, each=True)
    assert meter.took(1, 0) == (9, 1000)
    assert meter.took(0, 0) is None
    assert meter.took(0, 5) == (9, 1005)
