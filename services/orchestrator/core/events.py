"""What happened. The past tense is deliberate: an event cannot be refused.

Links are numbered by the shell; a number is never used again. A *client* link is a gateway's, or a
`Generate` call that the orchestrator plays the gateway for. A *worker* link belongs to one replica.
"""

from typing import Any

import msgspec

from services.orchestrator.core.replicas import LoadReport, WorkerCard, WorkerState
from stagemesh.control import OPEN, Answer, Call, Gate
from stagemesh.link.core import Grant, Journal, Row
from stagemesh.media import Request
from stagemesh.outcome import ErrorInfo, Terminal

__all__ = [
    "AbortAsked",
    "AttemptEnded",
    "AttemptUnknown",
    "ClientAttached",
    "ClientLost",
    "ControlAsked",
    "ControlDone",
    "CreditGranted",
    "DrainAsked",
    "Event",
    "FenceRaised",
    "Fenced",
    "HandedBack",
    "HandleLost",
    "InputCreditGranted",
    "InputsAppended",
    "InteractAsked",
    "Interacted",
    "Opened",
    "ReplicaAttached",
    "ReplicaListed",
    "ReplicaLost",
    "ReplicaReported",
    "RequestAbortAsked",
    "RowsArrived",
    "Tick",
    "UndrainAsked",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    pass


class ClientAttached(_Event, frozen=True, kw_only=True):
    """A client link opened; its Hello gave the first window of every request on it.

    A client that mirrors keeps a journal of its requests and may open them again elsewhere.
    """

    link: int
    window_units: int
    window_bytes: int
    mirrors: bool = False


class ClientLost(_Event, frozen=True, kw_only=True):
    """A client link broke, with every request on it."""

    link: int


class Opened(_Event, frozen=True, kw_only=True):
    """A client gave a request, under a slot that it chose. `body` goes into Submit unopened.

    The journal is what the owners of lower epochs made of it. A `streamed` request has more input
    to come; `inputs` are those pieces that an earlier owner was given, all of them.

    A request with `detach_s` waits so long for another gateway if this one is lost. `owner_since`
    is the first of the epochs that were all given to this orchestrator; where it is set, the
    journal has positions only, and is not the journal of a gateway that saw all of it.
    """

    link: int
    slot: int
    request_id: str
    epoch: int
    deadline_left_s: float
    request: Request
    body: Any
    journal: Journal = msgspec.field(default_factory=Journal)
    streamed: bool = False
    inputs: list[Row] = []
    detach_s: float = 0.0
    owner_since: int = 0


class InputsAppended(_Event, frozen=True, kw_only=True):
    """A client gave more of its input: pieces in order; slots are those of its requests."""

    link: int
    rows: list[Row]


class FenceRaised(_Event, frozen=True, kw_only=True):
    """A gateway told that a slot stands for nothing: its request is under another epoch.

    The highest number there is means that the request is done, or was never known; with `detach`,
    that another gateway will come for it.
    """

    link: int
    slot: int
    epoch: int
    detach: bool = False


class AbortAsked(_Event, frozen=True, kw_only=True):
    """A client wants one of its requests ended, with what was made of it, or without."""

    link: int
    slot: int
    cause: str
    partials: bool = False


class RequestAbortAsked(_Event, frozen=True, kw_only=True):
    """Somebody wants a request ended and knows only its id.

    Requests of other tenants than `tenant` are as good as unknown; an empty one is an operator's.
    """

    request_id: str
    cause: str
    tenant: str = ""
    partials: bool = False


class InteractAsked(_Event, frozen=True, kw_only=True):
    """A client has another prompt for what is being made; it chose the id."""

    link: int
    slot: int
    interaction_id: str
    text: str


class Interacted(_Event, frozen=True, kw_only=True):
    """A worker told from which position on another prompt applies, or why it does not."""

    link: int
    slot: int
    interaction_id: str
    applied_at: int = 0
    error: ErrorInfo | None = None


class CreditGranted(_Event, frozen=True, kw_only=True):
    """A client took outputs: totals for each of its slots."""

    link: int
    grants: list[Grant]


class HandleLost(_Event, frozen=True, kw_only=True):
    """A client, or a worker, could not fetch the bytes of a handle."""

    link: int
    slot: int
    handle_id: str


class ReplicaAttached(_Event, frozen=True, kw_only=True):
    """A worker link opened."""

    link: int
    pool: str
    replica_id: str
    incarnation: int
    card: WorkerCard
    state: WorkerState
    window_units: int
    window_bytes: int
    gate: Gate = OPEN


class ReplicaReported(_Event, frozen=True, kw_only=True):
    """A worker told its state and load, and mostly its gate too."""

    link: int
    state: WorkerState
    load: LoadReport
    gate: Gate | None = None


class ReplicaListed(_Event, frozen=True, kw_only=True):
    """Discovery names a replica, or no longer does; an unlisted one gets no new attempts."""

    replica_id: str
    listed: bool


class ReplicaLost(_Event, frozen=True, kw_only=True):
    """A worker link broke, with every attempt on it."""

    link: int


class RowsArrived(_Event, frozen=True, kw_only=True):
    """A worker sent outputs, in the order of its message."""

    link: int
    rows: list[Row]


class AttemptEnded(_Event, frozen=True, kw_only=True):
    """A worker ended an attempt whose lanes have not all ended."""

    link: int
    slot: int
    terminal: Terminal


class HandedBack(_Event, frozen=True, kw_only=True):
    """A worker gave an attempt up in good order, after all that it made of it."""

    link: int
    slot: int


class Fenced(_Event, frozen=True, kw_only=True):
    """A worker told the highest epoch it has seen of a request, and which handles it still has.

    It answers a fence, or anything that it was sent under a lower epoch.
    """

    link: int
    request_id: str
    epoch: int
    held: tuple[str, ...] = ()


class AttemptUnknown(_Event, frozen=True, kw_only=True):
    """A worker does not know a slot."""

    link: int
    slot: int


class InputCreditGranted(_Event, frozen=True, kw_only=True):
    """A worker took inputs: totals for each slot and source lane."""

    link: int
    grants: list[Grant]


class ControlAsked(_Event, frozen=True, kw_only=True):
    """An operator makes a call to every replica of some pools, or to some replicas.

    It is answered after `wait_s` at the latest; 0 means that nobody waits for what comes of it.
    """

    call_id: int
    call: Call
    wait_s: float
    pools: frozenset[str] = frozenset()
    replica_ids: frozenset[str] = frozenset()


class ControlDone(_Event, frozen=True, kw_only=True):
    """A worker told what came of a control call."""

    link: int
    control_id: int
    answer: Answer


class DrainAsked(_Event, frozen=True, kw_only=True):
    """The process is to stop: nothing new, and what is open ends within `drain_s`."""

    drain_s: float


class UndrainAsked(_Event, frozen=True, kw_only=True):
    """The process is to go on after all, and takes requests again."""


class Tick(_Event, frozen=True, kw_only=True):
    """The instant promised by `next_wakeup_s` has come."""


Event = (
    AbortAsked
    | AttemptEnded
    | AttemptUnknown
    | ClientAttached
    | ClientLost
    | ControlAsked
    | ControlDone
    | CreditGranted
    | DrainAsked
    | FenceRaised
    | Fenced
    | HandedBack
    | HandleLost
    | InputCreditGranted
    | InputsAppended
    | InteractAsked
    | Interacted
    | Opened
    | ReplicaAttached
    | ReplicaListed
    | ReplicaLost
    | ReplicaReported
    | RequestAbortAsked
    | RowsArrived
    | Tick
    | UndrainAsked
)
