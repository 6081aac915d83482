"""How attempts may go on elsewhere, as far as a worker has to know."""

from services.stage_worker.core.attempt import Attempt, State
from services.stage_worker.core.submission import RoleSpec, Submission
from services.stage_worker.engines.base import Capabilities, Resume, ResumeContract
from stagemesh.errors import MeshError
from stagemesh.media import split_lane
from stagemesh.outcome import error_for

__all__ = ["effective_contract", "hands_back_at_once", "resume_of"]


def effective_contract(capabilities: Capabilities) -> ResumeContract:
    """Give the contract that an engine can keep: what is made again must be the same."""
    declared = capabilities.resume_contract
    if declared is ResumeContract.REPLAY and not capabilities.deterministic:
        return ResumeContract.RESTART
    return declared


def hands_back_at_once(attempt: Attempt, contract: ResumeContract) -> bool:
    """Tell whether an attempt loses nothing if it goes on elsewhere right now.

    `contract` is the engine's; the orchestrator's word for this attempt comes first. Tokens that
    travel without their ids cannot be gone on from.
    """
    if attempt.state not in {State.WAITING, State.RUNNING}:
        return False
    agreed = attempt.submission.contract or contract
    if agreed is ResumeContract.TOKENS and attempt.role.token_ids:
        return True
    return agreed in {ResumeContract.TOKENS, ResumeContract.RESTART} and not attempt.has_sent


def resume_of(submission: Submission, role: RoleSpec, capabilities: Capabilities) -> Resume | None:
    """Say where the engine has to go on; None if it begins at the beginning.

    Raises:
        MeshError: If its contract is another one, so that it cannot go on from there.
    """
    contract = submission.contract
    if contract not in {ResumeContract.TOKENS, ResumeContract.PER_INPUT}:
        return None
    lanes = [submission.resume[lane] for lane in role.lanes if lane in submission.resume]
    if not any(lane.next for lane in lanes):
        return None
    if capabilities.resume_contract is not contract:
        raise MeshError(
            error_for("protocol_error", f"this engine does not go on by {contract.name}")
        )
    return Resume(
        contract=contract,
        positions={split_lane(lane.lane).modality: lane.next for lane in lanes},
        token_ids=tuple(id_ for lane in lanes for id_ in lane.ids),
    )
