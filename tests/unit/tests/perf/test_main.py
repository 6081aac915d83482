from typing import Any

import msgspec
import pytest

from tests.perf.__main__ import verdict
from tests.perf.results import Row


def row(name: str, *, met: bool | None) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(
        Row(name=name, value=1.25, unit="x", budget="<= 1 x", met=met)
    )
    return made


def test_budgets_that_are_met_and_figures_without_one_are_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verdict([row("fast", met=True), row("a figure", met=None)], []) == 0
    assert capsys.readouterr().out == ""


def test_a_missed_budget_is_named_last_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict([row("slow", met=False), row("fast", met=True)], []) == 1
    assert verdict([row("slow", met=False)], ["link"]) == 1
    said = capsys.readouterr().out.splitlines()
    missed = "MISSED: slow: 1.25 x, and the budget is <= 1 x"
    assert said == [missed, "FAILED to run: link", missed]


def test_a_benchmark_that_did_not_run_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict([], ["link"]) == 1
    assert capsys.readouterr().out == "FAILED to run: link\n"
