"""The page of faults: what others had, what happens here, and which test shows it."""

from collections.abc import Sequence
from typing import Final

from tools.docs.tables import table
from tools.faults.check import summary
from tools.faults.rows import Row, read_rows

__all__ = ["faults_page"]

_HEAD: Final = """\
# Faults of others, and what happens here

Generated from `tests/faults/`; do not edit.

Rows E and F are cases that the code of a comparable orchestrator explains in its comments, or leaves open; rows BR are public bug reports about systems like this one, in our own words.
`make test` ends with `python -m tools.faults`, which is red unless every test that is named here ran in that run, was not skipped, and passed ([decision 25](../decisions/0025-faults-of-others.md)).

"""  # noqa: E501 - one sentence a line.

_TITLES: Final = (
    ("E", "Edge cases of a comparable orchestrator"),
    ("F", "Fragile paths of a comparable orchestrator"),
    ("ABORT", "Aborts and ends"),
    ("CANCEL", "Clients that leave"),
    ("HANG", "Stages that die or hang"),
    ("CFG", "Companions"),
    ("COLLECT", "Control calls"),
    ("ISOL", "Requests that mix"),
    ("GRPC", "gRPC"),
    ("ROUTE", "Replicas, retries and load"),
    ("SLEEP", "Sleep, wake and pause"),
    ("LOAD", "Overload"),
    ("HEALTH", "Health and readiness"),
    ("TOK", "Tokens and text"),
)


def faults_page() -> str:
    """Write the page.

    Raises:
        ValueError: If the rows cannot be read, or one is of a kind without a title.
    """
    rows = read_rows()
    kinds = {kind for kind, _ in _TITLES}
    if strange := [row.id for row in rows if _kind(row) not in kinds]:
        raise ValueError(f"no such kind: {', '.join(strange)}")
    page = f"{_HEAD}{summary(rows)}\n"
    for kind, title in _TITLES:
        page += _section(title, [row for row in rows if _kind(row) == kind])
    return page


def _kind(row: Row) -> str:
    return row.kind or row.id[0]


def _section(title: str, rows: Sequence[Row]) -> str:
    cells = [(row.id, _fault(row), _here(row), "<br>".join(map(_link, row.tests))) for row in rows]
    return f"\n## {title}\n\n{table(('row', 'fault', 'here', 'shown by'), cells)}"


def _fault(row: Row) -> str:
    return f"{row.fault} ({row.seen})" if row.seen else row.fault


def _here(row: Row) -> str:
    if row.absent:
        return f"No such thing: {row.absent}"
    if row.later:
        return f"Not built yet: {row.later}"
    return f"Open: {row.open}." if row.open else row.here


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.replace('[', ': ').replace(']', '')}](../../{path})"
