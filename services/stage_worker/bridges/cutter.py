"""Cuts running text into clauses that can be spoken one by one."""

import re
from typing import Final

__all__ = ["Cutter"]

_BOUNDARY: Final = re.compile(r"""[.,;:!?…]["'’”)\]}]*(?=\s)|[。！？，；：、]|\n""")
_LAST_WORD: Final = re.compile(r"(\S+)$")
_ABBREVIATIONS: Final = frozenset(
    {
        "approx.", "ca.", "cf.", "co.", "corp.", "dept.", "dr.", "e.g.", "est.", "etc.", "fig.",
        "gen.", "i.e.", "inc.", "jr.", "ltd.", "messrs.", "mr.", "mrs.", "ms.", "mt.", "no.", "p.",
        "pp.", "prof.", "rev.", "sr.", "st.", "vol.", "vs.",
    }
)  # fmt: skip


class Cutter:
    """Takes text as it comes and gives whole clauses, which joined again are the text.

    A clause ends at punctuation that white space follows, so numbers such as 3.5 stay whole, and
    not after an abbreviation or an initial. Shorter than `chars_min` it is joined to the next, so
    that speech does not sound choppy; text without punctuation is cut at `chars_max`.
    """

    def __init__(self, *, chars_min: int, chars_max: int) -> None:
        self._chars_min = chars_min
        self._chars_max = chars_max
        self._text = ""

    def add(self, text: str) -> list[str]:
        """Take more text; give the clauses that it completes."""
        self._text += text
        clauses: list[str] = []
        while end := self._end_of_first():
            clauses.append(self._text[:end])
            self._text = self._text[end:]
        return clauses

    def rest(self) -> str:
        """Give what is left, when no more text comes."""
        rest, self._text = self._text, ""
        return rest

    def _end_of_first(self) -> int:
        """Find where the first clause ends; 0 if its end has not come yet."""
        text = self._text
        for match in _BOUNDARY.finditer(text, 0, self._chars_max + 1):
            end = match.end()
            if len(text[:end].strip()) >= self._chars_min and not _is_abbreviation(text[:end]):
                return end
        if len(text) <= self._chars_max:
            return 0
        space = text.rfind(" ", self._chars_min, self._chars_max)
        return space if space > 0 else self._chars_max


def _is_abbreviation(text: str) -> bool:
    """Tell whether a text ends in a word whose full stop ends no sentence."""
    if not text.endswith("."):
        return False
    match = _LAST_WORD.search(text)
    if match is None:
        return False
    word = match.group(1).lstrip("(\"'“‘[")
    return word.lower() in _ABBREVIATIONS or (len(word) == len("A.") and word[0].isupper())
