"""What happened. The past tense is deliberate: an event cannot be refused.

Links are numbered by the shell; a number is never used again. `attempt` is the worker's own number.
"""

import msgspec

from services.stage_worker.core.submission import Submission
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.control import Answer, Call, ControlSupport
from stagemesh.link.core import Grant, Row
from stagemesh.outcome import ErrorInfo

__all__ = [
    "AbortAsked",
    "AttemptBroke",
    "AttemptStarted",
    "ControlAsked",
    "ControlRefused",
    "CreditGranted",
    "DrainAsked",
    "EngineAnswered",
    "EngineBroke",
    "EngineLoaded",
    "Event",
    "FenceRaised",
    "InputClosed",
    "InputTaken",
    "InputsArrived",
    "InteractAsked",
    "Interacted",
    "LinkAttached",
    "LinkLost",
    "NothingToDo",
    "PiecesMade",
    "ReleaseAsked",
    "RenewAsked",
    "SubmissionRefused",
    "Submitted",
    "Tick",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class LinkAttached(_Event, frozen=True):
    """An orchestrator's link opened; its Hello gave the first window of every attempt on it."""

    link: int
    window_units: int
    window_bytes: int


class LinkLost(_Event, frozen=True):
    """A link broke, with every attempt on it."""

    link: int


class Submitted(_Event, frozen=True):
    """An orchestrator gave a stage of a request to this worker."""

    link: int
    submission: Submission


class SubmissionRefused(_Event, frozen=True):
    """A submission could not be read."""

    link: int
    submission: Submission
    error: ErrorInfo


class InputsArrived(_Event, frozen=True):
    """Inputs came, in the order of their message; slots are attempts', lanes are the sources'."""

    link: int
    rows: list[Row]


class CreditGranted(_Event, frozen=True):
    """An orchestrator took outputs: totals for each slot."""

    link: int
    grants: list[Grant]


class AbortAsked(_Event, frozen=True):
    """An orchestrator wants an attempt ended, with what waits for credit or without."""

    link: int
    slot: int
    cause: str
    partials: bool = False


class InteractAsked(_Event, frozen=True):
    """An orchestrator has another prompt for an attempt."""

    link: int
    slot: int
    interaction_id: str
    text: str


class Interacted(_Event, frozen=True):
    """The engine took another prompt, from a position on; or it did not, because of `error`."""

    attempt: int
    interaction_id: str
    applied_at: int = 0
    error: ErrorInfo | None = None


class FenceRaised(_Event, frozen=True):
    """An orchestrator silences everything of a request below an epoch, and claims its payloads."""

    link: int
    request_id: str
    epoch: int
    handle_ids: tuple[str, ...] = ()


class RenewAsked(_Event, frozen=True):
    """An orchestrator keeps a request's payloads alive."""

    link: int
    request_id: str
    epoch: int


class ReleaseAsked(_Event, frozen=True):
    """An orchestrator frees payloads of a request; none named means all."""

    link: int
    request_id: str
    epoch: int
    handle_ids: tuple[str, ...] = ()


class ControlAsked(_Event, frozen=True):
    """An orchestrator makes a control call, which has `timeout_s`."""

    link: int
    control_id: int
    call: Call
    timeout_s: float


class ControlRefused(_Event, frozen=True):
    """A control call could not be read."""

    link: int
    control_id: int
    error: ErrorInfo


class EngineAnswered(_Event, frozen=True):
    """The engine has carried out a control call, or could not."""

    number: int
    answer: Answer


class EngineLoaded(_Event, frozen=True):
    """The engine has answered its warm-up; it runs `slots` attempts at once.

    `contract` is the one that it can keep, which is less than it declares if it draws at random.
    """

    slots: int
    contract: ResumeContract
    control: ControlSupport = ControlSupport()


class AttemptStarted(_Event, frozen=True):
    """The engine took an attempt, whose input took `transfer_s` to be fetched until then."""

    attempt: int
    transfer_s: float = 0.0


class InputTaken(_Event, frozen=True):
    """The bridge took inputs of one source."""

    attempt: int
    lane: int
    units: int
    bytes: int


class InputClosed(_Event, frozen=True):
    """The engine has all the input that an attempt will get."""

    attempt: int


class NothingToDo(_Event, frozen=True):
    """The bridge is complete and gave no input: the attempt's lanes end empty."""

    attempt: int


class AttemptBroke(_Event, frozen=True):
    """The bridge or the engine refused an attempt's input, or its bytes could not be had."""

    attempt: int
    error: ErrorInfo
    handle_id: str = ""


class PiecesMade(_Event, frozen=True):
    """The engine made one step."""

    pieces: list[Piece]


class EngineBroke(_Event, frozen=True):
    """The engine cannot go on."""

    error: ErrorInfo


class DrainAsked(_Event, frozen=True):
    """The process is to stop: nothing new, and what runs ends within `drain_s`."""

    drain_s: float


class Tick(_Event, frozen=True):
    """The instant promised by `next_wakeup_s` has come; the engine has made `steps` steps."""

    steps: int


Event = (
    AbortAsked
    | AttemptBroke
    | AttemptStarted
    | ControlAsked
    | ControlRefused
    | CreditGranted
    | DrainAsked
    | EngineAnswered
    | EngineBroke
    | EngineLoaded
    | FenceRaised
    | InputClosed
    | InputTaken
    | InputsArrived
    | InteractAsked
    | Interacted
    | LinkAttached
    | LinkLost
    | NothingToDo
    | PiecesMade
    | ReleaseAsked
    | RenewAsked
    | SubmissionRefused
    | Submitted
    | Tick
)
