"""How far the lanes of a request are committed."""

from services.gateway.core.detached import LanePosition, moved
from stagemesh.link.core import Row
from stagemesh.outcome import End, FinishReason

STOP = End(finish_reason=FinishReason.STOP)


def test_rows_move_their_own_lanes_and_leave_the_others() -> None:
    lanes = moved((), [Row(1, 5, 0, 3), Row(1, 6, 0, 1), Row(1, 5, 3, 2)])
    assert lanes == (LanePosition(5, 5), LanePosition(6, 1))
    assert moved(lanes, [Row(1, 6, 1, 4)]) == (LanePosition(5, 5), LanePosition(6, 5))
    assert moved(lanes, []) == lanes


def test_a_bare_end_is_a_position_of_its_own() -> None:
    assert moved((LanePosition(5, 3),), [Row(1, 5, 3, 0, end=STOP)]) == (LanePosition(5, 3, STOP),)
