"""What the shell must do. The imperative is deliberate: an effect is an order.

Effects are performed in the order given. What follows from one event shares one `SendRows` and one
`SendGrants` for each link, as far as no other effect for the same link comes in between.
"""

from typing import Any

import msgspec

from stagemesh.link.core import Grant, Row
from stagemesh.outcome import Terminal
from stagemesh.pipeline import EdgeMode

__all__ = [
    "AbortAttempt",
    "AnswerUnknown",
    "Effect",
    "EndRequest",
    "PublishModels",
    "PublishedModel",
    "ReleaseHandles",
    "RenewHandles",
    "RoleOrder",
    "SayGoAway",
    "SendGrants",
    "SendRows",
    "SourceOrder",
    "SubmitAttempts",
]


class _Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class SendRows(_Effect, frozen=True, kw_only=True):
    """Send outputs to a client, or inputs to a worker; slots are that link's."""

    link: int
    rows: list[Row]


class SendGrants(_Effect, frozen=True, kw_only=True):
    """Let a worker send more outputs."""

    link: int
    grants: list[Grant]


class RoleOrder(_Effect, frozen=True, kw_only=True):
    """One attempt of a submission: a choice, or a companion of one."""

    slot: int
    role: int
    companion: str
    lanes: tuple[int, ...]


class SourceOrder(_Effect, frozen=True, kw_only=True):
    """One input lane of a submission, for the roles of `choice`."""

    lane: int
    stage: str
    companion: str
    mode: EdgeMode
    choice: int


class SubmitAttempts(_Effect, frozen=True, kw_only=True):
    """Give a stage of a request to a replica: one attempt for each role."""

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


class AbortAttempt(_Effect, frozen=True, kw_only=True):
    """Tell a worker to stop an attempt; its engine slot is taken until the worker answers."""

    link: int
    slot: int
    cause: str


class EndRequest(_Effect, frozen=True, kw_only=True):
    """Give a client the terminal of its request: the last that it hears of it."""

    link: int
    slot: int
    request_id: str
    terminal: Terminal


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
    | AnswerUnknown
    | EndRequest
    | PublishModels
    | ReleaseHandles
    | RenewHandles
    | SayGoAway
    | SendGrants
    | SendRows
    | SubmitAttempts
)
