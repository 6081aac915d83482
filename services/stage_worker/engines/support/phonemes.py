"""English text to phonemes for Piper voices, under permissive licences only.

The words come from misaki's American lexicons (Apache-2.0), whose symbols are mapped to the ones
that Piper voices were trained with; numbers are spelled out; what the lexicons do not know is taken
apart into known words and endings, and at last spelled.
"""

import importlib.util
import json
import re
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Final

from services.stage_worker.engines.support.numbers import spell_numbers

__all__ = ["phonemes"]

_SYMBOLS: Final = (
    ("A", "eɪ"), ("I", "aɪ"), ("W", "aʊ"), ("Y", "ɔɪ"), ("O", "oʊ"), ("ʤ", "dʒ"), ("ʧ", "tʃ"),
    ("T", "ɾ"), ("ᵊ", "ə"), ("ɜɹ", "ɜː"), ("ᵻ", "ɪ"),
)  # fmt: skip
"""A diphthong or affricate of the lexicons, and its spelling in IPA."""

_LETTERS: Final = {
    "a": "ˈA", "b": "bˈi", "c": "sˈi", "d": "dˈi", "e": "ˈi", "f": "ˈɛf", "g": "ʤˈi", "h": "ˈAʧ",
    "i": "ˈI", "j": "ʤˈA", "k": "kˈA", "l": "ˈɛl", "m": "ˈɛm", "n": "ˈɛn", "o": "ˈO", "p": "pˈi",
    "q": "kjˈu", "r": "ˈɑɹ", "s": "ˈɛs", "t": "tˈi", "u": "jˈu", "v": "vˈi", "w": "dˈʌbᵊlju",
    "x": "ˈɛks", "y": "wˈI", "z": "zˈi",
}  # fmt: skip
_UNSTRESSED: Final = {
    "the": "ðə", "a": "ə", "an": "ən", "to": "tə", "of": "ʌv", "and": "ænd",
}  # fmt: skip
_ENDINGS: Final = (
    ("'s", "z"), ("s", "z"), ("es", "ᵻz"), ("ed", "d"), ("ing", "ɪŋ"), ("ly", "li"), ("er", "əɹ"),
)  # fmt: skip
_SIGNS: Final = {"&": " and ", "@": " at ", "+": " plus ", "=": " equals ", "%": " percent "}
_SHORTEST_STEM: Final = 3
_LONGEST_WORD: Final = 40
"""What is longer is no word, and not worth taking apart."""

_TOKEN: Final = re.compile(r"[A-Za-z']+|[.,!?;:]")


def phonemes(text: str) -> str:
    """Write text as IPA; punctuation that a voice pauses at is kept, other signs are silent."""
    parts: list[str] = []
    for match in _TOKEN.finditer(_plain(text)):
        token = match[0]
        if token in ".,!?;:":
            parts.append(token)
        elif word := token.strip("'"):
            parts.append((" " if parts else "") + _word(word))
    written = "".join(parts)
    for symbol, ipa in _SYMBOLS:
        written = written.replace(symbol, ipa)
    return written


def _plain(text: str) -> str:
    """Leave only what the lexicons know: no accents, no digits, the plain apostrophe."""
    text = spell_numbers(unicodedata.normalize("NFKC", text))
    for sign, words in _SIGNS.items():
        text = text.replace(sign, words)
    split = unicodedata.normalize("NFKD", text.replace("’", "'"))
    return "".join(letter for letter in split if not unicodedata.combining(letter))


@lru_cache(maxsize=1)
def _lexicon() -> dict[str, str]:
    spec = importlib.util.find_spec("misaki")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("the package misaki, which brings the lexicons, is not installed")
    folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    words: dict[str, str] = {}
    for name in ("us_silver.json", "us_gold.json"):  # The later and better one wins.
        for word, said in json.loads((folder / name).read_text(encoding="utf-8")).items():
            best = said.get("DEFAULT") if isinstance(said, dict) else said
            if best:
                words[word] = best
    return words


@lru_cache(maxsize=4096)
def _word(word: str) -> str:
    lower, lexicon = word.lower(), _lexicon()
    if lower in _UNSTRESSED:
        return _UNSTRESSED[lower]
    for form in (word, lower, lower.capitalize()):
        if form in lexicon:
            return lexicon[form]
    if len(word) > _LONGEST_WORD:
        return _spelled(lower)
    return _with_ending(lower) or _compound(lower) or _spelled(lower)


def _with_ending(word: str) -> str:
    for ending, said in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < _SHORTEST_STEM:
            continue
        doubled = len(stem) > _SHORTEST_STEM and stem[-1] == stem[-2]
        for form in (stem, stem + "e", stem[:-1] if doubled else stem):
            if base := _lexicon().get(form):
                if ending in {"s", "'s"} and base[-1] in "ptkfθ":
                    return base + "s"
                if ending == "ed" and base[-1] in "td":
                    return base + "ᵻd"
                return base + said
    return ""


def _compound(word: str) -> str:
    for cut in range(len(word) - _SHORTEST_STEM, _SHORTEST_STEM - 1, -1):
        head, tail = _lexicon().get(word[:cut]), _lexicon().get(word[cut:])
        if head and tail:
            return head + tail
    return ""


def _spelled(word: str) -> str:
    return "".join(_LETTERS.get(letter, "") for letter in word)
