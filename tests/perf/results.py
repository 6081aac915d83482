"""The rows that every benchmark prints and `make bench` gathers."""

import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = ["Row", "median", "print_rows"]


class Row(msgspec.Struct, kw_only=True):
    """One figure: its budget, whether it is met, the peer's figure, and every run."""

    name: str
    value: float
    unit: str
    budget: str = ""
    met: bool | None = None
    peer: float | None = None
    runs: list[Any] = []
    command: str = ""


def median(values: Sequence[float]) -> float:
    """Give the median."""
    return float(statistics.median(values))


def print_rows(rows: Sequence[Row]) -> None:
    """Print the rows as one line of JSON each, for whoever gathers them."""
    for row in rows:
        row.command = row.command or " ".join(["python", *sys.argv])
        print(json.dumps(msgspec.to_builtins(row)), flush=True)  # noqa: T201 - the output
