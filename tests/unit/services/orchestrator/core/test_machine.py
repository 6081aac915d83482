"""Scenarios: what the core orders, event by event."""

from pathlib import Path

import pytest

from services.orchestrator.core import events as ev
from services.orchestrator.core.machine import Orchestrator
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_scenarios import SCENARIOS, replay, told

PATHS = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.invariant(
    "ORCH-INV-107", "ORCH-INV-109", "ORCH-INV-206", "ORCH-INV-207", "ORCH-INV-220", "ORCH-INV-221"
)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_scenario_goes_as_told(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert replay(text) == text


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_scenario_tells_a_story(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert told(text) != text, "no event of it has an effect"


def test_an_idle_core_wants_no_wakeup() -> None:
    core = Orchestrator(core_mesh())
    assert core.next_wakeup_s is None
    assert core.requests_open == 0
    assert not any(core.footprint().values())


def test_models_are_not_ready_before_their_replicas() -> None:
    core = Orchestrator(core_mesh())
    assert {model.model for model in core.models} >= {"echo", "parrot", "talk"}
    assert not any(model.ready for model in core.models)


def test_time_never_goes_back() -> None:
    core = Orchestrator(core_mesh())
    core.step(ev.ClientAttached(link=1, window_units=1, window_bytes=1), 10.0)
    core.step(ev.RequestAbortAsked(request_id="a", cause=""), 5.0)
    assert core.next_wakeup_s == pytest.approx(40.0)
