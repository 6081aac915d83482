import importlib.util
import time

import pytest

from services.stage_worker.engines.support.phonemes import phonemes

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("misaki") is None, reason="the lexicons are not installed"
)


def test_words_come_from_the_lexicon_and_punctuation_stays() -> None:
    assert phonemes("Hello, world!") == "həlˈoʊ, wˈɜːld!"


def test_numbers_and_signs_are_read_as_words() -> None:
    assert phonemes("3 & 4%") == phonemes("three and four percent")


def test_accents_and_typographic_apostrophes_do_not_split_words() -> None:
    assert phonemes("café") == phonemes("cafe")
    assert phonemes("don’t") == phonemes("don't")


@pytest.mark.parametrize("text", ["", "   ", "😀", "日本語", "'", "''"])
def test_what_has_no_letters_is_silent(text: str) -> None:
    assert phonemes(text) == ""


def test_punctuation_alone_is_only_pauses() -> None:
    assert phonemes("...?!") == "...?!"


@pytest.mark.parametrize(
    ("word", "like"),
    [("floods", "floodz"), ("blooped", "bloopt"), ("keyboardist", "keyboard")],
)
def test_unknown_forms_are_taken_apart(word: str, like: str) -> None:
    assert phonemes(word)[:3] == phonemes(like)[:3]


def test_what_is_no_word_is_spelled() -> None:
    assert phonemes("xqz") == "ˈɛkskjˈuzˈi"


def test_a_very_long_word_takes_no_time() -> None:
    began_s = time.process_time()
    assert len(phonemes("ab" * 20_000)) > 40_000
    assert time.process_time() - began_s < 1.0
