from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch
from xml.sax.saxutils import quoteattr

import pytest

from tests.helpers.code import ROOT
from tests.helpers.invariants import Proof
from tools.faults import __main__ as program
from tools.faults.rows import Row

SHOWN = Row(id="E1", fault="f.", here="h.", tests=("tests/test_a.py::test_it",))
OPEN = Row(id="E2", fault="f.", open="NAME")
PROOF = Proof("INV", ROOT / "tests" / "test_a.py", "test_it")


def checked(folder: Path, *, rows: Sequence[Row], ran: str = "test_it") -> int:
    """Run the program on a report of one test."""
    report = folder / "one.xml"
    report.write_text(
        f'<testsuites><testcase classname="tests.test_a" name={quoteattr(ran)}/></testsuites>'
    )
    with (
        patch.object(program, "read_rows", lambda: rows),
        patch.object(program, "proofs", lambda: [PROOF]),
    ):
        return program.main(["--ran", str(report)])


def test_it_counts_and_names_what_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, rows=[SHOWN, OPEN]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "faults: 2 rows: 1 shown by 1 tests, 1 open.",
        "faults: E2 is open (NAME)",
    ]


def test_it_fails_and_says_what_did_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, rows=[SHOWN], ran="test_other") == 1
    missing = "tests/test_a.py::test_it did not run, or does not exist"
    assert capsys.readouterr().err.splitlines() == [
        f"faults: E1: {missing}",
        f"faults: INV: {missing}",
        "faults: INV: no test that ran proves it",
    ]


def test_without_a_report_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--ran", str(tmp_path / "none.xml")]) == 1
    assert "none.xml cannot be read" in capsys.readouterr().err
