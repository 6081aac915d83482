"""Contracts."""

import pytest

from services.orchestrator.core.contracts import ResumeContract, effective
from services.orchestrator.core.replicas import WorkerCard
from stagemesh.api.types.v1 import link_pb2


@pytest.mark.parametrize("contract", list(ResumeContract))
@pytest.mark.parametrize("deterministic", [True, False])
def test_only_a_replay_asks_for_determinism(contract: ResumeContract, deterministic: bool) -> None:
    card = WorkerCard(resume_contract=contract, deterministic=deterministic)
    replay = contract is ResumeContract.REPLAY and not deterministic
    assert effective(card) is (ResumeContract.RESTART if replay else contract)


def test_the_numbers_are_those_of_the_wire() -> None:
    wire = {name.removeprefix("RESUME_CONTRACT_"): n for name, n in link_pb2.ResumeContract.items()}
    assert {one.name: one.value for one in ResumeContract} == {
        name: number for name, number in wire.items() if number
    }
