import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.stage_worker.bridges.cutter import Cutter


def cut(*pieces: str, chars_min: int = 4, chars_max: int = 60) -> list[str]:
    cutter = Cutter(chars_min=chars_min, chars_max=chars_max)
    clauses = [clause for piece in pieces for clause in cutter.add(piece)]
    return [*clauses, cutter.rest()]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Good day, my friend. How are you?", ["Good day,", " my friend.", " How are you?"]),
        ("It costs 3.5 euros; or 1,000 cents.", ["It costs 3.5 euros;", " or 1,000 cents."]),
        ("Dr. Smith met Mrs. Jones. They talked.", ["Dr. Smith met Mrs. Jones.", " They talked."]),
        ("Ask J. R. Smith, e.g. now. Yes?", ["Ask J. R. Smith,", " e.g. now.", " Yes?"]),
        ('"Stop!" he said. Then left.', ['"Stop!"', " he said.", " Then left."]),
        ("Line one\nline two", ["Line one\n", "line two"]),
        ("你好，世界。再见", ["你好，世界。", "再见"]),
        ("", [""]),
    ],
)  # fmt: skip
def test_clauses_end_where_a_speaker_would_pause(text: str, clauses: list[str]) -> None:
    assert cut(text) == clauses


def test_a_short_clause_is_joined_to_the_next() -> None:
    assert cut("Yes, of course, dear.", chars_min=8) == ["Yes, of course,", " dear."]


def test_a_clause_is_given_as_soon_as_the_space_after_it_is_there() -> None:
    cutter = Cutter(chars_min=4, chars_max=60)
    assert cutter.add("Hello there.") == []
    assert cutter.add(" I") == ["Hello there."]
    assert cutter.rest() == " I"


def test_text_without_punctuation_is_cut_between_words() -> None:
    clauses = cut("word " * 40, chars_max=50)
    assert all(len(clause) <= 50 for clause in clauses)
    assert all(clause.strip().split() for clause in clauses[:-1])
    assert "".join(clauses) == "word " * 40


def test_text_without_spaces_is_cut_hard() -> None:
    assert list(map(len, cut("x" * 130, chars_max=50))) == [50, 50, 30]


@given(
    st.lists(st.text(alphabet="ab .,;!?\n\"'3", max_size=12)),
    st.integers(1, 20),
)
def test_nothing_is_lost_and_chunking_does_not_matter(pieces: list[str], chars_min: int) -> None:
    text = "".join(pieces)
    clauses = cut(*pieces, chars_min=chars_min, chars_max=30)
    assert "".join(clauses) == text
    assert clauses == cut(text, chars_min=chars_min, chars_max=30)
