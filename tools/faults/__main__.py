"""`python -m tools.faults --ran REPORT…` checks that what the table of faults names has run.

So it does for the tests that the page of invariants names. `make test` ends with it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.invariants import proofs
from tools.faults.check import objections_to_proofs, objections_to_rows, summary
from tools.faults.ran import read_reports
from tools.faults.rows import read_rows

__all__ = ["main"]

_ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the count, the open rows, and every objection; gives 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--ran", nargs="+", type=Path, required=True, help="reports of pytest")
    try:
        ran = read_reports(parser.parse_args(arguments).ran)
        rows = read_rows()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"faults: {summary(rows)}")
    for row in rows:
        if row.open:
            print(f"faults: {row.id} is open ({row.open})")
    objections = [*objections_to_rows(rows, ran), *objections_to_proofs(_proofs(), ran)]
    for said in objections:
        print(f"faults: {said}", file=sys.stderr)
    return 1 if objections else 0


def _proofs() -> dict[str, list[str]]:
    """Give the tests that are marked as proofs, by invariant."""
    found: dict[str, list[str]] = {}
    for proof in proofs():
        path = proof.path.relative_to(_ROOT).as_posix()
        name = f"{path}::{proof.test}" if proof.test else path
        found.setdefault(proof.invariant, []).append(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
