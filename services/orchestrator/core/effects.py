"""What the shell must do. The imperative is deliberate: an effect is an order.

Effects are performed in the order given. What follows from one event shares one `SendRows` and one
`SendGrants` for each link, as far as no other effect for the same link comes in between.
"""

from typing import Any, Final

import msgspec

from services.orchestrator.core.contracts import ResumeContract
from stagemesh.control import Answer, Call
from stagemesh.link.core import Grant, LaneJournal, Placed, Row
from stagemesh.media import Params
from stagemesh.outcome import ErrorInfo, Terminal
from stagemesh.pipeline import EdgeMode

__all__ = [
    "OPERATORS_LINK",
    "AbortAttempt",
    "AnswerControl",
    "AnswerInteraction",
    "AnswerUnknown",
    "AppliedPrompt",
    "AskWorker",
    "DropRequest",
    "Effect",
    "EndRequest",
    "FenceRequest",
    "HandBackRequest",
    "PlaceNotice",
    "PublishModels",
    "PublishedModel",
    "ReleaseHandles",
    "RenewHandles",
    "ReplicaResult",
    "ResetLanes",
    "RoleOrder",
    "SayGoAway",
    "SendGrants",
    "SendPrompt",
    "SendRows",
    "SourceOrder",
    "SubmitAttempts",
]


OPERATORS_LINK: Final = -1
"""The number that stands for operators, as if all their calls came on one link."""


class _Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class SendRows(_Effect, frozen=True, kw_only=True):
    """Send outputs to a client, or inputs to a worker; slots are that link's."""

    link: int
    rows: list[Row]


class SendGrants(_Effect, frozen=True, kw_only=True):
    """Let a worker send more outputs, or a client more of its input."""

    link: int
    grants: list[Grant]


class RoleOrder(_Effect, frozen=True, kw_only=True):
    """One attempt of a submission: a choice, or a companion of one."""

    slot: int
    role: int
    companion: str
    lanes: tuple[int, ...]
    token_ids: bool = False


class SourceOrder(_Effect, frozen=True, kw_only=True):
    """One input lane of a submission, for the roles of `choice`."""

    lane: int
    stage: str
    companion: str
    mode: EdgeMode
    choice: int


class AppliedPrompt(_Effect, frozen=True, kw_only=True):
    """A change of the prompt that an earlier attempt took."""

    interaction_id: str
    text: str
    applied_at: int


class SubmitAttempts(_Effect, frozen=True, kw_only=True):
    """Give a stage of a request to a replica: one attempt for each role.

    `params` is what holds at the stage, of all that was wished and is laid down. One that goes on
    from an earlier attempt names the contract by which it does, and where its
    lanes stand.
    """

    link: int
    request_id: str
    epoch: int
    attempt: int
    model: str
    stage: int
    roles: tuple[RoleOrder, ...]
    sources: tuple[SourceOrder, ...]
    deadline_left_s: float
    body: Any
    params: Params = Params()
    contract: ResumeContract | None = None
    resume: tuple[LaneJournal, ...] = ()
    prompts: tuple[AppliedPrompt, ...] = ()


class SendPrompt(_Effect, frozen=True, kw_only=True):
    """Give a running attempt another prompt."""

    link: int
    slot: int
    interaction_id: str
    text: str


class AnswerInteraction(_Effect, frozen=True, kw_only=True):
    """Tell a client from which position of a stage's outputs on its prompt applies, or why not."""

    link: int
    slot: int
    interaction_id: str
    stage: int = 0
    applied_at: int = 0
    error: ErrorInfo | None = None


class AbortAttempt(_Effect, frozen=True, kw_only=True):
    """Tell a worker to stop an attempt; its engine slot is taken until the worker answers.

    With `partials` it first sends what waits there for credit.
    """

    link: int
    slot: int
    cause: str
    partials: bool = False


class AskWorker(_Effect, frozen=True, kw_only=True):
    """Make a control call to a worker, which has `timeout_s` for it."""

    link: int
    control_id: int
    call: Call
    timeout_s: float


class ReplicaResult(_Effect, frozen=True, kw_only=True):
    """What came of a control call at one replica."""

    pool: str
    replica_id: str
    incarnation: int
    answer: Answer
    took_s: float


class AnswerControl(_Effect, frozen=True, kw_only=True):
    """Tell an operator what came of a call: at each replica, or `error` if it was not made."""

    call_id: int
    results: tuple[ReplicaResult, ...] = ()
    error: ErrorInfo | None = None
    link: int = OPERATORS_LINK


class EndRequest(_Effect, frozen=True, kw_only=True):
    """Give a client the terminal of its request: the last that it hears of it."""

    link: int
    slot: int
    request_id: str
    terminal: Terminal


class HandBackRequest(_Effect, frozen=True, kw_only=True):
    """Give a request back to its gateway, which opens it elsewhere: the last that it hears here."""

    link: int
    slot: int
    request_id: str


class DropRequest(_Effect, frozen=True, kw_only=True):
    """Note that a request is over here and that its client is told nothing; nothing is sent.

    `terminal` says how it ended, for those who look at requests. The link may be lost.
    """

    link: int
    slot: int
    request_id: str
    terminal: Terminal


class PlaceNotice(_Effect, frozen=True, kw_only=True):
    """Tell a gateway where a role of its request is going to be given."""

    link: int
    slot: int
    placed: Placed


class ResetLanes(_Effect, frozen=True, kw_only=True):
    """Tell a gateway to drop the lanes of these stages: they begin again."""

    link: int
    slot: int
    stages: tuple[int, ...]


class FenceRequest(_Effect, frozen=True, kw_only=True):
    """Silence at a worker whatever a lower epoch started, and keep these handles for this one."""

    link: int
    request_id: str
    epoch: int
    handle_ids: tuple[str, ...] = ()


class AnswerUnknown(_Effect, frozen=True, kw_only=True):
    """Tell a client that a slot means nothing here."""

    link: int
    slot: int


class ReleaseHandles(_Effect, frozen=True, kw_only=True):
    """Let a worker drop the payloads of a request; none named means all."""

    link: int
    request_id: str
    epoch: int
    handle_ids: tuple[str, ...] = ()


class RenewHandles(_Effect, frozen=True, kw_only=True):
    """Keep the payloads of a request alive at a worker."""

    link: int
    request_id: str
    epoch: int


class SayGoAway(_Effect, frozen=True, kw_only=True):
    """Tell a client link that nothing new is taken."""

    link: int
    reason: str
    drain_s: float


class PublishedModel(_Effect, frozen=True, kw_only=True):
    """A model name, and whether it can be served now."""

    model: str
    revision: str
    ready: bool


class PublishModels(_Effect, frozen=True, kw_only=True):
    """Tell every client link, and health, which models can be served."""

    models: tuple[PublishedModel, ...]


Effect = (
    AbortAttempt
    | AnswerControl
    | AnswerInteraction
    | AnswerUnknown
    | AskWorker
    | DropRequest
    | EndRequest
    | FenceRequest
    | HandBackRequest
    | PlaceNotice
    | PublishModels
    | ReleaseHandles
    | RenewHandles
    | ResetLanes
    | SayGoAway
    | SendGrants
    | SendPrompt
    | SendRows
    | SubmitAttempts
)
