import pytest

from services.stage_worker.core import ProcessState
from services.stage_worker.core.refusals import outcome_for, refusal
from stagemesh.api.types.v1 import link_pb2
from stagemesh.outcome import ErrorCode, Outcome


def test_states_have_the_numbers_of_the_proto() -> None:
    for state in ProcessState:
        assert int(link_pb2.ProcessState.Value(f"PROCESS_STATE_{state.name}")) == int(state)


def test_a_ready_worker_with_room_refuses_nothing() -> None:
    assert refusal(ProcessState.READY, room=True) is None


@pytest.mark.parametrize("state", set(ProcessState) - {ProcessState.READY})
def test_any_other_state_refuses_whatever_the_room(state: ProcessState) -> None:
    assert refusal(state, room=True) is not None


@pytest.mark.parametrize(
    ("code", "started", "outcome"),
    [
        (ErrorCode.ABORTED, True, Outcome.CANCELLED),
        (ErrorCode.DEADLINE, True, Outcome.DEADLINE_EXCEEDED),
        (ErrorCode.OVERLOADED, False, Outcome.REJECTED),
        (ErrorCode.OVERLOADED, True, Outcome.FAILED),
        (ErrorCode.INVALID_ARGUMENT, False, Outcome.FAILED),
    ],
)
def test_a_cause_decides_the_outcome(code: ErrorCode, started: bool, outcome: Outcome) -> None:
    assert outcome_for(code, started=started) is outcome
