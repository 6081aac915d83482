"""Whether the tests that something rests on ran and passed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tools.faults.ran import Ran, Verdict
from tools.faults.rows import Row

__all__ = ["objections_to_proofs", "objections_to_rows", "summary"]


def objections_to_rows(rows: Iterable[Row], ran: Ran) -> Iterator[str]:
    """Say of which rows a test does not exist, did not run, was skipped, or failed.

    Of a test with cases some may be skipped, since a profile may lack what they need.
    """
    for row in rows:
        for test in row.tests:
            if said := _objection(ran.of(test)):
                yield f"{row.id}: {test} {said}"


def objections_to_proofs(proofs: Mapping[str, Sequence[str]], ran: Ran) -> Iterator[str]:
    """Say which invariants nothing that ran has proved, and which proofs are missing or failed.

    A proof may be skipped where a program that it needs is not installed, if another one ran.
    """
    for invariant, tests in proofs.items():
        said = {test: _objection(ran.of(test)) for test in tests}
        for test, objection in said.items():
            if objection not in {"", _SKIPPED}:
                yield f"{invariant}: {test} {objection}"
        if all(said.values()):
            yield f"{invariant}: no test that ran proves it"


def summary(rows: Sequence[Row]) -> str:
    """Count the rows in one sentence."""
    shown = [row for row in rows if row.tests]
    tests = {test for row in shown for test in row.tests}
    said = f"{len(rows)} rows: {len(shown)} shown by {len(tests)} tests"
    for count, words in (
        (sum(bool(row.absent) for row in rows), "about what does not exist here"),
        (sum(bool(row.later) for row in rows), "about what is not built yet"),
        (sum(bool(row.open) for row in rows), "open"),
    ):
        said += f", {count} {words}" if count else ""
    return f"{said}."


_SKIPPED = "was skipped"


def _objection(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "did not run, or does not exist"
    if Verdict.FAILED in verdicts:
        return "failed"
    return "" if Verdict.PASSED in verdicts else _SKIPPED
