"""What the shell must do. The imperative is deliberate: an effect is an order.

Effects are performed in the order given. One step gives at most one `SendRows` for each link.
"""

import msgspec

from services.stage_worker.core.submission import RoleSpec, Submission
from stagemesh.control import Answer, Call
from stagemesh.link.core import Grant, Row
from stagemesh.outcome import ErrorInfo, Terminal

__all__ = [
    "AbortEngine",
    "CallEngine",
    "ClaimPayloads",
    "Effect",
    "Exit",
    "FeedAttempt",
    "ForgetAttempt",
    "InteractEngine",
    "ReleasePayloads",
    "RenewPayloads",
    "ReportState",
    "SayGoAway",
    "SendControlled",
    "SendFenced",
    "SendGrants",
    "SendHandBack",
    "SendHandleLost",
    "SendInteracted",
    "SendRows",
    "SendTerminal",
    "SendUnknown",
    "StartAttempt",
]


class _Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class StartAttempt(_Effect, frozen=True):
    """Make the bridge of an attempt, and give the engine what the request alone allows."""

    attempt: int
    submission: Submission
    role: RoleSpec


class FeedAttempt(_Effect, frozen=True):
    """Give the bridge of an attempt its next inputs, and report each as taken."""

    attempt: int
    rows: list[Row]


class AbortEngine(_Effect, frozen=True):
    """Tell the engine to stop an attempt."""

    attempt: int


class CallEngine(_Effect, frozen=True):
    """Let the engine carry out a control call, and tell what came of it by `EngineAnswered`."""

    number: int
    call: Call


class InteractEngine(_Effect, frozen=True):
    """Give an attempt in the engine another prompt, and tell what came of it."""

    attempt: int
    interaction_id: str
    text: str


class ForgetAttempt(_Effect, frozen=True):
    """Drop bridge and inputs of an attempt; `end` says how it ended, in one word."""

    attempt: int
    end: str


class SendRows(_Effect, frozen=True):
    """Send outputs that have their credit."""

    link: int
    rows: list[Row]


class SendGrants(_Effect, frozen=True):
    """Let an orchestrator send more inputs."""

    link: int
    grants: list[Grant]


class SendTerminal(_Effect, frozen=True):
    """End an attempt that does not end all its lanes."""

    link: int
    slot: int
    terminal: Terminal


class SendHandBack(_Effect, frozen=True):
    """Give an attempt back to its orchestrator, in good order."""

    link: int
    slot: int


class SendUnknown(_Effect, frozen=True):
    """Tell an orchestrator that a slot means nothing here."""

    link: int
    slot: int


class SendFenced(_Effect, frozen=True):
    """Tell an orchestrator the highest epoch of a request, and which payloads are held for it."""

    link: int
    request_id: str
    epoch: int
    held: tuple[str, ...] = ()


class SendHandleLost(_Effect, frozen=True):
    """Tell an orchestrator that the bytes behind a handle could not be had."""

    link: int
    slot: int
    handle_id: str


class SendControlled(_Effect, frozen=True):
    """Tell an orchestrator what came of a control call."""

    link: int
    control_id: int
    answer: Answer


class SendInteracted(_Effect, frozen=True):
    """Tell an orchestrator from which position on a prompt applies, or why it does not."""

    link: int
    slot: int
    interaction_id: str
    applied_at: int
    error: ErrorInfo | None


class SayGoAway(_Effect, frozen=True):
    """Tell an orchestrator that nothing new is taken."""

    link: int
    reason: str
    drain_s: float


class ReportState(_Effect, frozen=True):
    """Tell every link, and health, of a new state."""


class ReleasePayloads(_Effect, frozen=True):
    """Drop payloads of a request; none named means all."""

    request_id: str
    handle_ids: tuple[str, ...] = ()


class RenewPayloads(_Effect, frozen=True):
    """Keep the payloads of a request."""

    request_id: str


class ClaimPayloads(_Effect, frozen=True):
    """Keep payloads of a request for a new owner, and tell it by `SendFenced` which are held."""

    link: int
    request_id: str
    epoch: int
    handle_ids: tuple[str, ...]


class Exit(_Effect, frozen=True):
    """Stop the process: in good order, or because of `error`."""

    error: ErrorInfo | None = None


Effect = (
    AbortEngine
    | CallEngine
    | ClaimPayloads
    | Exit
    | FeedAttempt
    | ForgetAttempt
    | InteractEngine
    | ReleasePayloads
    | RenewPayloads
    | ReportState
    | SayGoAway
    | SendControlled
    | SendFenced
    | SendGrants
    | SendHandBack
    | SendHandleLost
    | SendInteracted
    | SendRows
    | SendTerminal
    | SendUnknown
    | StartAttempt
)
