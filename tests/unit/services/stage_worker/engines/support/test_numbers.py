import pytest

from services.stage_worker.engines.support.numbers import cardinal, ordinal, spell_numbers


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (99, "ninety nine"),
        (100, "one hundred"),
        (1001, "one thousand one"),
        (1_234_567, "one million two hundred thirty four thousand five hundred sixty seven"),
        (10**15 - 1, "nine hundred ninety nine trillion nine hundred ninety nine billion nine "
         "hundred ninety nine million nine hundred ninety nine thousand nine hundred ninety nine"),
    ],
)  # fmt: skip
def test_numbers_are_written_in_words(number: int, words: str) -> None:
    assert cardinal(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "first"),
        (2, "second"),
        (12, "twelfth"),
        (20, "twentieth"),
        (23, "twenty third"),
        (100, "one hundredth"),
        (1005, "one thousand fifth"),
    ],
)
def test_places_are_written_in_words(number: int, words: str) -> None:
    assert ordinal(number) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("at 25, then", "at twenty five , then"),
        ("3.50 left", "three point five zero left"),
        ("1,234 and 1,23", "one thousand two hundred thirty four and one , twenty three"),
        ("$5 or 5 %", "five dollars or five percent"),
        ("the 3rd of 3rds", "the third of three rds"),
        ("x2y", "x two y"),
        ("0007", "seven"),
        ("1234567890123456", "one two three four five six seven eight nine zero "
         "one two three four five six"),
        ("٣ and no digits", "٣ and no digits"),
    ],
)  # fmt: skip
def test_numbers_in_a_text_are_spelled_out(text: str, words: str) -> None:
    assert spell_numbers(text).split() == words.split()
