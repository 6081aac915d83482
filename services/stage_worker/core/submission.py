"""One submission: a stage of a request, as an orchestrator gives it to a worker."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from services.stage_worker.engines.base import Interaction, ResumeContract
from stagemesh.link.core import LaneJournal
from stagemesh.media import Params, Request

__all__ = ["RoleSpec", "Source", "Submission"]


class RoleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One role of a submission: a choice, or a companion of one. Each role is one attempt."""

    slot: int
    role: int
    companion: str
    lanes: tuple[int, ...]
    """The lanes that it is asked for; it is finished when each has ended."""
    token_ids: bool = False
    """Whether its text comes with token ids."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One input lane, for the roles of `choice`."""

    lane: int
    stage: str
    companion: str
    choice: int


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a `Submit` says; `deadline_left_s` 0 means that there is none.

    `resume` says of lanes, by their numbers, how far they came in earlier attempts, and `contract`
    how to go on from there; None at a first attempt.
    """

    request_id: str
    epoch: int
    attempt: int
    stage: int
    stage_name: str
    roles: tuple[RoleSpec, ...]
    sources: tuple[Source, ...]
    deadline_left_s: float
    request: Request
    params: Params
    bridge: str
    bridge_options: Mapping[str, Any]
    contract: ResumeContract | None = None
    resume: Mapping[int, LaneJournal] = {}
    interactions: tuple[Interaction, ...] = ()

    @property
    def key(self) -> tuple[int, int]:
        """What orders the attempts of one stage and role: a higher one replaces a lower one."""
        return self.epoch, self.attempt

    def choice_of(self, role: RoleSpec) -> int:
        """Tell which choice a role belongs to."""
        return role.role % self.request.choices

    def groups(self) -> Iterator[tuple[RoleSpec, ...]]:
        """Give the roles of each choice: what must be taken or refused as one."""
        by_choice: dict[int, list[RoleSpec]] = {}
        for role in self.roles:
            by_choice.setdefault(self.choice_of(role), []).append(role)
        yield from map(tuple, by_choice.values())

    def sources_of(self, role: RoleSpec) -> tuple[Source, ...]:
        """Give the inputs that a role reads: those of its choice."""
        choice = self.choice_of(role)
        return tuple(source for source in self.sources if source.choice == choice)
