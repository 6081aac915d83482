"""The rows of `tests/faults/`: one fault each, and what shows that it does not happen here.

A row says in `here` what happens, with the `tests` that show it, by pytest's node ids; or why
there is no such thing here (`absent`), to which later work it belongs (`later`), or who is at it
(`open`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["ROWS", "Row", "read_rows"]

ROWS: Final = Path(__file__).parents[2] / "tests" / "faults"
"""Where the files of rows are."""


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault."""

    id: str
    fault: str
    kind: str = ""
    """The kind of a bug report; the rows of the ledger have none."""
    seen: str = ""
    """Where a bug report was read."""
    here: str = ""
    tests: tuple[str, ...] = ()
    absent: str = ""
    later: str = ""
    open: str = ""

    def objections(self) -> Iterator[str]:
        """Say what is wrong with how the row is written."""
        ways = [self.tests, self.absent, self.later, self.open]
        if sum(map(bool, ways)) != 1:
            yield f"{self.id}: needs one of tests, absent, later and open"
        if self.tests and not self.here:
            yield f"{self.id}: does not say what happens here"
        if len(set(self.tests)) != len(self.tests):
            yield f"{self.id}: names a test twice"
        for text in (self.fault, self.here, self.absent, self.later):
            if text and not text.endswith("."):
                yield f"{self.id}: is no sentence: {text}"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: tuple[Row, ...]


def read_rows(folder: Path = ROWS) -> list[Row]:
    """Read all rows, file by file, each in the order in which it is written.

    Raises:
        ValueError: If a file cannot be read as rows, or a row is not written as it must be.
    """
    found: list[Row] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            found += msgspec.toml.decode(path.read_bytes(), type=_File).row
        except msgspec.DecodeError as error:
            raise ValueError(f"{path.name}: {error}") from error
    if objections := [*_repeated(found), *(said for row in found for said in row.objections())]:
        raise ValueError("\n".join(objections))
    return found


def _repeated(rows: Sequence[Row]) -> Iterator[str]:
    ids = [row.id for row in rows]
    yield from (f"{one}: is there twice" for one in dict.fromkeys(ids) if ids.count(one) > 1)
