"""The worker's decisions, without I/O."""

from services.stage_worker.core.attempt import MOVES, State
from services.stage_worker.core.contracts import effective_contract, resume_of
from services.stage_worker.core.effects import Effect
from services.stage_worker.core.events import Event
from services.stage_worker.core.limits import Identity, Limits
from services.stage_worker.core.machine import StageWorker
from services.stage_worker.core.refusals import ProcessState
from services.stage_worker.core.replay import Replays
from services.stage_worker.core.submission import RoleSpec, Source, Submission

__all__ = [
    "MOVES",
    "Effect",
    "Event",
    "Identity",
    "Limits",
    "ProcessState",
    "Replays",
    "RoleSpec",
    "Source",
    "StageWorker",
    "State",
    "Submission",
    "effective_contract",
    "resume_of",
]
