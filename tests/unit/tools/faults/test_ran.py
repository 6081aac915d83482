from pathlib import Path

import pytest

from tools.faults.ran import Verdict, read_reports

PASSED, SKIPPED, FAILED = Verdict.PASSED, Verdict.SKIPPED, Verdict.FAILED


def report(folder: Path, *cases: str, name: str = "one.xml") -> Path:
    """Write what pytest writes; a case is its class and name, and what it holds."""
    path = folder / name
    inside = "".join(
        f'<testcase classname="{classname}" name="{test}" time="0.1">{held}</testcase>'
        for classname, test, held in (case.split("|") for case in cases)
    )
    suites = f'<testsuites><testsuite name="pytest">{inside}</testsuite></testsuites>'
    path.write_text(f'<?xml version="1.0" encoding="utf-8"?>{suites}')
    return path


def test_a_test_is_found_by_its_node_id(tmp_path: Path) -> None:
    ran = read_reports(
        [report(tmp_path, "tests.unit.test_a|test_it|", "tests.unit.test_a.TestAll|runTest|")]
    )
    assert ran.of("tests/unit/test_a.py::test_it") == [PASSED]
    assert ran.of("tests/unit/test_a.py::TestAll::runTest") == [PASSED]
    assert ran.of("tests/unit/test_a.py::test_other") == []
    assert ran.of("tests/unit/test_b.py::test_it") == []


def test_a_name_without_brackets_means_every_case(tmp_path: Path) -> None:
    ran = read_reports(
        [
            report(
                tmp_path,
                "tests.test_a|test_it[x.y]|",
                'tests.test_a|test_it[z::1]|<skipped type="pytest.skip" message="no">why</skipped>',
                "tests.test_a|test_its_other|<failure>no</failure>",
            )
        ]
    )
    assert ran.of("tests/test_a.py::test_it") == [PASSED, SKIPPED]
    assert ran.of("tests/test_a.py::test_it[x.y]") == [PASSED]
    assert ran.of("tests/test_a.py::test_it[z::1]") == [SKIPPED]
    assert ran.of("tests/test_a.py::test_it[x]") == []


def test_a_module_and_a_class_mean_all_that_is_in_them(tmp_path: Path) -> None:
    ran = read_reports(
        [
            report(
                tmp_path,
                "tests.test_a.TestAll|test_one|",
                "tests.test_a|test_two[1]|<skipped/>",
                "tests.test_ab|test_three|",
            )
        ]
    )
    assert ran.of("tests/test_a.py") == [PASSED, SKIPPED]
    assert ran.of("tests/test_a.py::TestAll") == [PASSED]


@pytest.mark.parametrize("held", ["<failure/>", "<error/>", "<skipped/><error/>"])
def test_the_worst_of_several_verdicts_counts(tmp_path: Path, held: str) -> None:
    """A test that passed and whose teardown failed is in a report twice."""
    ran = read_reports(
        [
            report(tmp_path, "tests.test_a|test_it|", f"tests.test_a|test_it|{held}"),
            report(tmp_path, "tests.test_a|test_it|", name="two.xml"),
        ]
    )
    assert ran.of("tests/test_a.py::test_it") == [FAILED]


def test_a_report_that_is_missing_or_broken_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.xml cannot be read"):
        read_reports([tmp_path / "none.xml"])
    (tmp_path / "cut.xml").write_text("<testsuites><testcase")
    with pytest.raises(ValueError, match=r"cut\.xml cannot be read"):
        read_reports([tmp_path / "cut.xml"])
