"""The pages of `docs/` and the blocks of code in them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.helpers.code import ROOT

__all__ = ["Block", "all_pages", "blocks", "prose"]

_FENCE: Final = re.compile(r"^```(.*)$")


class Block(NamedTuple):
    """A block of code: its language, what else its fence says, and its text.

    `run` means that it is an example that works as it stands, `output` that the example before it
    prints this (`…` stands for anything), and `file=NAME` that the reader has written it to a file.
    """

    page: Path
    line: int
    language: str
    words: frozenset[str]
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that it is the text of, if any."""
        names = [word.removeprefix("file=") for word in self.words if word.startswith("file=")]
        return names[0] if names else None

    @property
    def name(self) -> str:
        """Where it stands."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def all_pages() -> list[Path]:
    """List every page, those at the root of the repository included."""
    pages = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
    assert pages
    return pages


def blocks(page: Path) -> Iterator[Block]:
    """Give the blocks of a page."""
    language, words, start, inside = "", frozenset[str](), 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence is None:
            inside.append(line)
        elif start:
            yield Block(page, start, language, words, "\n".join(inside) + "\n")
            start = 0
        else:
            said = fence[1].split()
            language, words, start, inside = said[0], frozenset(said[1:]), number, []


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Give the lines of a page that are neither code nor part of a table."""
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside and not line.startswith("|"):
            yield number, line
