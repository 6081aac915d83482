import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

from services.stage_worker.engines.support.token_text import TokenText  # noqa: E402


def by_bytes() -> Tokenizer:
    """Make a tokenizer whose tokens are the 256 bytes, so that any character can be cut."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZER = by_bytes()


def pieces(text: str, stops: tuple[str, ...] = ()) -> tuple[list[str], TokenText]:
    found = TokenText(TOKENIZER, stops)
    return [found.push(token) for token in TOKENIZER.encode(text).ids], found


def test_a_character_comes_when_it_is_whole() -> None:
    texts, _ = pieces("aé😀")
    assert texts == ["a", "", "é", "", "", "", "😀"]


def test_nothing_of_a_stop_string_is_given() -> None:
    texts, found = pieces("one STOP two", ("STOP",))
    assert "".join(texts) == "one "
    assert found.stop_match == "STOP"
    assert found.flush() == ""


def test_what_only_begins_like_a_stop_string_comes_in_the_end() -> None:
    texts, found = pieces("say ST", ("STOP",))
    assert "".join(texts) == "say "
    assert found.stop_match == ""
    assert found.flush() == "ST"
