"""What a client of one request has given."""

from services.gateway.core.inputs import InputLog
from stagemesh.link.core import INPUT_PIECE_BYTES, REQUEST_SOURCE, Row


def piece(at: int, text: str = "abc") -> Row:
    return Row(0, REQUEST_SOURCE, at, 1, text)


def test_pieces_are_kept_in_order_and_counted() -> None:
    log = InputLog(10_000)
    for at in range(3):
        log.add(piece(at))
    assert (log.next, log.whole) == (3, True)
    assert [row.pos for row in log.rows] == [0, 1, 2]
    assert log.size_bytes == 3 * (INPUT_PIECE_BYTES + 3)


def test_above_its_bound_it_keeps_nothing_and_still_counts_positions() -> None:
    log = InputLog(INPUT_PIECE_BYTES + 3)
    log.add(piece(0))
    assert log.whole
    log.add(piece(1))
    log.add(piece(2))
    assert (log.whole, log.rows, log.size_bytes, log.next) == (False, [], 0, 3)
