import pytest

from stagemesh.link.core import Cursor, Row, Step
from stagemesh.outcome import End, FinishReason

STOP = End(finish_reason=FinishReason.STOP)


def row(pos: int, units: int, end: End | None = None) -> Row:
    return Row(1, 1, pos, units, end=end)


def test_what_comes_next_is_accepted() -> None:
    cursor = Cursor()
    assert [cursor.check(row(0, 3)), cursor.check(row(3, 0)), cursor.check(row(3, 2))] == [
        Step.ACCEPT
    ] * 3
    assert cursor.next == 5


def test_what_lies_wholly_below_is_dropped() -> None:
    cursor = Cursor(5)
    assert cursor.check(row(0, 5)) is Step.DROP
    assert cursor.check(row(3, 0)) is Step.DROP
    assert cursor.next == 5


@pytest.mark.parametrize(("pos", "units"), [(6, 1), (4, 2), (0, 6)])
def test_a_gap_and_a_straddle_are_refused(pos: int, units: int) -> None:
    cursor = Cursor(5)
    assert cursor.check(row(pos, units)) is Step.GAP
    assert cursor.next == 5


def test_an_end_ends_the_lane() -> None:
    cursor = Cursor()
    assert cursor.check(row(0, 2, STOP)) is Step.ACCEPT
    assert cursor.ended
    assert cursor.check(row(2, 1)) is Step.GAP
    assert cursor.check(row(2, 0, STOP)) is Step.DROP
    assert cursor.check(row(0, 2, STOP)) is Step.DROP


def test_an_end_below_the_cursor_of_an_open_lane_is_refused() -> None:
    assert Cursor(5).check(row(3, 2, STOP)) is Step.GAP


def test_a_cursor_may_start_at_the_end() -> None:
    assert Cursor(5, ended=True).check(row(5, 0, STOP)) is Step.DROP
