"""The units of a request's work: groups, and the attempts that were made at them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from services.orchestrator.core.feeds import Feed
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.interactions import Prompt
from services.orchestrator.core.loss import Loss, Way
from services.orchestrator.core.moves import (
    ATTEMPT_MOVES,
    GROUP_MOVES,
    AttemptState,
    IllegalMove,
    Standing,
)
from services.orchestrator.core.plan import GroupPlan, RolePlan
from services.orchestrator.core.replicas import Replica, WorkerCard
from services.orchestrator.core.tickets import Ticket
from services.orchestrator.core.timers import Timer
from stagemesh.link.core import Meter
from stagemesh.outcome import ErrorInfo, Timings, error_for
from stagemesh.pipeline import EdgeMode, Stage

if TYPE_CHECKING:
    from services.orchestrator.core.request import OpenRequest

__all__ = ["Attempt", "Group"]


@dataclass(slots=True, eq=False)
class Attempt:
    """One submission of one role of a group to one replica."""

    group: "Group"
    role: RolePlan
    number: int
    state: AttemptState
    meter: Meter
    placed_on: Replica | None = None
    slot: int = 0
    lanes: dict[int, Lane] = field(default_factory=dict)
    open_lanes: set[int] = field(default_factory=set)
    feeds: dict[int, Feed] = field(default_factory=dict)
    submitted_s: float = 0.0
    unanswered: bool = False
    """It was told to stop, and its request ended before its worker answered."""
    timings: Timings | None = None
    """What its worker said last of where its time went."""

    def move(self, to: AttemptState) -> None:
        """Change its state by the table."""
        self.state = ATTEMPT_MOVES.check(self.state, to)

    @property
    def replica(self) -> Replica:
        """The replica that has it.

        Raises:
            IllegalMove: If it was never placed, so that nobody can ask this.
        """
        if self.placed_on is None:
            raise IllegalMove(f"an attempt in state {self.state.name} has no replica")
        return self.placed_on

    @property
    def running(self) -> bool:
        """Whether its outputs count."""
        return self.state is AttemptState.SUBMITTED or self.state is AttemptState.STREAMING

    def error(self, reason: str, message: str = "") -> ErrorInfo:
        """Make a cause that arose at this attempt."""
        return self.placed(error_for(reason, message))

    def placed(self, error: ErrorInfo) -> ErrorInfo:
        """Say of a cause where it arose, and for which companion."""
        companion = self.role.companion
        return msgspec.structs.replace(
            error,
            message=f"Companion {companion}: {error.message}" if companion else error.message,
            stage=self.group.stage.name,
            pool=self.group.stage.pool,
            replica_id=self.replica.replica_id,
            attempt=self.number,
        )


@dataclass(slots=True, eq=False)
class Group:
    """One choice of a stage with its companions; `attempts` are the latest of each role."""

    request: "OpenRequest"
    plan: GroupPlan
    standing: Standing = GROUP_MOVES.start
    unfed: bool = True
    """It is not running, so what it has not been sent is nobody's debt."""
    keeping: bool = True
    """It may have to be sent its sources again, so they keep everything."""
    attempts: tuple[Attempt, ...] = ()
    numbers_used: int = 0
    ticket: Ticket | None = None
    timer: Timer | None = None
    join_timer: Timer | None = None
    """Since some of its roles have ended and others have not."""
    pending_s: float = 0.0
    refusals: int = 0
    refused_s: float | None = None
    refusal: ErrorInfo | None = None
    avoid: set[int] = field(default_factory=set)
    card: WorkerCard | None = None
    """Of the replica that it was given to last."""
    resumes: bool = False
    """It was started before, here or by another owner, and was lost."""
    way: Way | None = None
    """How it goes on."""
    stale: bool = False
    """The gateway was told what is going to be made again, and has to drop it first."""
    loss: Loss | None = None
    """Not accounted for yet."""
    free: bool = True
    """Going on costs nothing of the retry budget: it was handed back, or another owner lost it."""
    losses: int = 0
    crashes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each role that a replica was lost with: how often in a row, and at which position."""
    cause: ErrorInfo | None = None
    """Of its last loss."""
    prompts: list[Prompt] = field(default_factory=list)
    """The changes of its prompt that it was given in its present run."""
    lanes: tuple[Lane, ...] = ()
    sources: tuple[Lane, ...] = ()

    @property
    def stage(self) -> Stage:
        """The stage that it is a choice of."""
        return self.plan.stage

    def move(self, to: Standing) -> None:
        """Change where it stands by the table, unless it stands there."""
        if to is not self.standing:
            self.standing = GROUP_MOVES.check(self.standing, to)

    @property
    def key(self) -> tuple[bool, int, int, int]:
        """Its order among those that want an engine slot: first who goes on after a loss."""
        stage, choice = self.plan.stage, self.plan.choice
        return (not self.resumes, -stage.index, self.request.number, choice)

    @property
    def wanted(self) -> int:
        """How many engine slots it wants."""
        return sum(attempt.state is AttemptState.PENDING for attempt in self.attempts)

    @property
    def wanted_at_once(self) -> int:
        """How many engine slots it wants on one replica."""
        return min(1, self.wanted) if self.stage.apart else self.wanted

    @property
    def segment(self) -> int:
        """Which segment of its input it is at, where it runs once for each: it has one lane."""
        return self.lanes[0].segments

    @property
    def kept_sources(self) -> list[Lane]:
        """The lanes that it may have to be sent from the start: not those it reads by segments."""
        return [
            lane
            for source, lane in zip(self.plan.sources, self.sources, strict=True)
            if source.mode is not EdgeMode.SEGMENT
        ]

    @property
    def idle_roles(self) -> list[RolePlan]:
        """The roles that have not given everything and that nobody works on."""
        busy = {attempt.role.role for attempt in self.attempts if attempt.running}
        lanes = self.request.lanes
        return [
            role
            for role in self.plan.roles
            if role.role not in busy and not all(lanes[n].cursor.ended for n in role.lanes)
        ]

    @property
    def running(self) -> bool:
        """Whether some worker has it."""
        return any(attempt.running for attempt in self.attempts)

    def live(self) -> list[Attempt]:
        """Give its attempts that hold an engine slot."""
        return [a for a in self.attempts if a.running or a.state is AttemptState.STOPPING]

    def crash(self, role: RolePlan) -> None:
        """Note that a replica was lost, or stood still, while it worked on a role."""
        at = sum(self.request.lanes[number].cursor.next for number in role.lanes)
        count, before = self.crashes.get(role.role, (0, at))
        self.crashes[role.role] = (count + 1 if before == at else 1, at)

    def lose(self, loss: Loss, cause: ErrorInfo | None) -> None:
        """Note that nobody works on some of it any more; it wants its inputs again."""
        self.move(Standing.LOST)
        self.resumes = True
        self.ticket = None
        if self.loss is None or loss.value > self.loss.value:
            self.loss = loss
        self.cause = cause or self.cause
        self.want_inputs()

    def want_inputs(self) -> None:
        """Note that it does not run, so that its sources keep what it has not been sent."""
        if not self.unfed:
            self.unfed = True
            for lane in self.kept_sources:
                lane.unfed += 1

    def keep_inputs(self) -> None:
        """Note that it may have to be sent its sources again after all."""
        if not self.keeping:
            self.keeping = True
            for lane in self.kept_sources:
                lane.keepers += 1

    def release_inputs(self) -> None:
        """Note that it never has to be sent its sources again."""
        if self.keeping:
            self.keeping = False
            for lane in self.kept_sources:
                lane.keepers -= 1
                self.request.journal_bytes += lane.trim()
