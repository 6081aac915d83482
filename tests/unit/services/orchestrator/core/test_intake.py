"""The account of a streamed input."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core.intake import Intake
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import REQUEST_SOURCE, Grant, Row
from tests.helpers.core_stage import CoreStage, make_request, of_kind


def intake_of(stage: CoreStage) -> Intake:
    """Open a conversation; give its account."""
    stage.converse(make_request("listen"))
    (request,) = stage.core._state.requests.values()
    assert request.intake is not None
    return request.intake


def test_a_client_may_overrun_its_credit_by_one_piece_and_a_bare_end_needs_none() -> None:
    intake = intake_of(CoreStage(CoreSettings(window_units=1)))
    assert intake.spend(Row(1, REQUEST_SOURCE, 0, 1, "a"))
    assert not intake.spend(Row(1, REQUEST_SOURCE, 1, 1, "b"))
    assert intake.spend(Row(1, REQUEST_SOURCE, 1, 0))
    assert intake.took(1, 1) == Grant(1, REQUEST_SOURCE, 2, (1 << 20) + 1)
    assert intake.spend(Row(1, REQUEST_SOURCE, 1, 1, "b"))


@pytest.mark.invariant("ORCH-INV-142")
def test_a_client_waits_for_those_who_hear_it_as_it_speaks() -> None:
    stage = CoreStage()
    intake = intake_of(stage)
    assert intake.held_back
    stage.append(1, "a")
    assert intake.held_back, "nobody runs yet"
    _, effects = stage.replica("listener")
    assert of_kind(effects, fx.SubmitAttempts)
    assert not intake.held_back
