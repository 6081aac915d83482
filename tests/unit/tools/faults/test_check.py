from tools.faults.check import objections_to_proofs, objections_to_rows, summary
from tools.faults.ran import Ran, Verdict
from tools.faults.rows import Row

PASSED, SKIPPED, FAILED = Verdict.PASSED, Verdict.SKIPPED, Verdict.FAILED

RAN = Ran(
    {
        "t.test_good": PASSED,
        "t.test_bad": FAILED,
        "t.test_left_out": SKIPPED,
        "t.test_some[1]": PASSED,
        "t.test_some[2]": SKIPPED,
        "t.test_most[1]": PASSED,
        "t.test_most[2]": FAILED,
        "t.test_none[1]": SKIPPED,
        "t.test_none[2]": SKIPPED,
    }
)


def row(*tests: str) -> Row:
    return Row(id="E1", fault="f.", here="h.", tests=tuple(f"t.py::test_{name}" for name in tests))


def said(*tests: str) -> list[str]:
    return [
        objection.removeprefix("E1: t.py::test_")
        for objection in objections_to_rows([row(*tests)], RAN)
    ]


def test_a_row_whose_tests_passed_is_in_order() -> None:
    assert said("good", "some", "some[1]", "most[1]") == []


def test_a_test_must_have_run_not_been_skipped_and_have_passed() -> None:
    assert said("gone", "some[3]") == [
        "gone did not run, or does not exist",
        "some[3] did not run, or does not exist",
    ]
    assert said("left_out", "some[2]", "none") == [
        "left_out was skipped",
        "some[2] was skipped",
        "none was skipped",
    ]
    assert said("bad", "most") == ["bad failed", "most failed"]


def test_rows_without_tests_ask_for_nothing() -> None:
    rows = [Row(id="E1", fault="f.", absent="a."), Row(id="E2", fault="f.", open="X")]
    assert list(objections_to_rows(rows, RAN)) == []


def proofs(*tests: str) -> list[str]:
    return list(objections_to_proofs({"INV": [f"t.py::test_{name}" for name in tests]}, RAN))


def test_an_invariant_needs_one_proof_that_ran() -> None:
    assert proofs("good", "left_out") == []
    assert proofs("left_out", "none") == ["INV: no test that ran proves it"]
    assert proofs() == ["INV: no test that ran proves it"]


def test_a_proof_that_failed_or_is_not_there_is_told_although_another_ran() -> None:
    assert proofs("good", "bad", "gone") == [
        "INV: t.py::test_bad failed",
        "INV: t.py::test_gone did not run, or does not exist",
    ]


def test_the_count_says_what_there_is() -> None:
    rows = [row("good", "bad"), row("good"), Row(id="E2", fault="f.", later="l.")]
    assert summary(rows) == "3 rows: 2 shown by 2 tests, 1 about what is not built yet."
    assert summary([Row(id="E3", fault="f.", absent="a."), Row(id="E4", fault="f.", open="X")]) == (
        "2 rows: 0 shown by 0 tests, 1 about what does not exist here, 1 open."
    )
