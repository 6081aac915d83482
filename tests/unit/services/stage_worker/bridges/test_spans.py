from services.stage_worker.bridges.spans import Spans


def spans(*pieces: tuple[int, int]) -> Spans:
    found = Spans()
    pos = 0
    for chars, units in pieces:
        found.add(chars, pos, units)
        pos += units
    return found


def test_a_cut_between_pieces_begins_a_span_of_its_own() -> None:
    cut = spans((5, 2), (6, 3), (4, 1))
    assert cut.take(5) == (2, (0, 2))
    assert cut.take(10) == (4, (2, 6))


def test_a_cut_within_a_piece_goes_back_to_where_one_could_begin_again() -> None:
    cut = spans((5, 2), (6, 3), (4, 1), (3, 1))
    assert cut.take(8) == (2, (0, 5))
    assert cut.take(7) == (4, (0, 6))
    assert cut.take(3) == (1, (6, 7))


def test_pieces_without_text_belong_to_the_cut_before_them() -> None:
    cut = spans((5, 1), (0, 1), (4, 1))
    assert cut.take(5) == (2, (0, 2))
    assert cut.take(4) == (1, (2, 3))


def test_several_cuts_of_one_piece_share_its_span() -> None:
    cut = spans((9, 4))
    assert [cut.take(3) for _ in range(3)] == [(0, (0, 4)), (0, (0, 4)), (4, (0, 4))]
