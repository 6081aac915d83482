"""The table of faults has every row that it must have, and names tests that are there.

Whether they ran and passed is asked at the end of `make test`, by `python -m tools.faults`.
"""

import ast
from typing import Final

import pytest

from tests.helpers.code import ROOT, parsed
from tools.faults.rows import Row, read_rows

ROWS: Final = read_rows()

LEDGER: Final = {f"E{number}" for number in range(1, 63)} | {f"F{n}" for n in range(1, 8)}

REPORTS: Final = {
    "ABORT": (29, 30, 32, 33, 34, 36, 37),
    "CANCEL": (20, 21, 22, 24, 25, 26, 28),
    "HANG": (38, 39, 40, 42, 43),
    "CFG": (45, 46, 47),
    "COLLECT": (49, 50, 51),
    "ISOL": (179, 180, 181, 182),
    "GRPC": (127, 128, 130, 131, 132, 134, 135, 137, 138),
    "ROUTE": (139, 140, 141, 143, 144, 146, 147),
    "SLEEP": (159, 160, 162, 163),
    "LOAD": (174, 175, 176, 177),
    "HEALTH": (153, 154, 156, 157, 158),
    "TOK": (184, 185, 187),
}
"""The numbers of the reports that this table is about, by kind."""


def test_every_case_and_every_report_has_a_row() -> None:
    reports = {(row.kind, row.id) for row in ROWS if row.kind}
    assert reports == {
        (kind, f"BR-{number:03}") for kind, numbers in REPORTS.items() for number in numbers
    }
    assert {row.id for row in ROWS if not row.kind} == LEDGER


def test_every_report_says_where_it_was_read() -> None:
    assert [row.id for row in ROWS if bool(row.kind) != bool(row.seen)] == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.tests], ids=lambda row: row.id)
def test_the_tests_that_a_row_names_are_there(row: Row) -> None:
    for test in row.tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0].partition("::")[0] in names_in(path), test


def names_in(path: str) -> set[str]:
    """Name the tests of a module, and the classes that hold some."""
    found = set()
    for node in parsed(ROOT / path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in found if name.startswith(("test_", "Test"))}
