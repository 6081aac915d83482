"""Numbers in English words, for voices that read letters only."""

import re
from typing import Final

__all__ = ["cardinal", "ordinal", "spell_numbers"]

_ONES: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS: Final = (
    "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
)  # fmt: skip
_SCALES: Final = (
    (10**12, "trillion"),
    (10**9, "billion"),
    (10**6, "million"),
    (1000, "thousand"),
    (100, "hundred"),
)
_IRREGULAR: Final = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip
_CURRENCIES: Final = {"$": "dollars", "£": "pounds", "€": "euros"}
_NUMBER: Final = re.compile(
    r"(?P<money>[$£€])?"
    r"(?P<whole>\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
    r"(?:\.(?P<part>\d+))?"
    r"(?P<ordinal>(?:st|nd|rd|th)\b)?"
    r"(?P<percent>\s?%)?",
    re.ASCII,
)
_DIGITS_MAX: Final = 15
"""Longer numbers are no amounts: they are read digit by digit."""


def spell_numbers(text: str) -> str:
    """Write the numbers of a text in words, with spaces around them."""
    return _NUMBER.sub(_spell, text)


def cardinal(number: int) -> str:
    """Write a number from 0 to 10^15 - 1 in words."""
    if number < len(_ONES):
        return _ONES[number]
    for size, name in _SCALES:
        if number >= size:
            many, rest = divmod(number, size)
            return f"{cardinal(many)} {name}" + (f" {cardinal(rest)}" if rest else "")
    tens, rest = divmod(number, 10)
    return _TENS[tens] + (f" {_ONES[rest]}" if rest else "")


def ordinal(number: int) -> str:
    """Write a number's place in words: first, twenty third."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    else:
        last = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return f"{head} {last}".strip()


def _spell(match: re.Match[str]) -> str:
    digits, part = match["whole"].replace(",", ""), match["part"]
    if len(digits) > _DIGITS_MAX:
        words = _one_by_one(digits)
    elif match["ordinal"] and not part:
        words = ordinal(int(digits))
    else:
        words = cardinal(int(digits))
    if part:
        words += f" point {_one_by_one(part)}"
    if match["money"]:
        words += f" {_CURRENCIES[match['money']]}"
    if match["percent"]:
        words += " percent"
    return f" {words} "


def _one_by_one(digits: str) -> str:
    return " ".join(_ONES[int(digit)] for digit in digits)
