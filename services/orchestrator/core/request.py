"""One open request: its groups, their attempts, its lanes."""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from services.orchestrator.core.clients import NO_WISHES, Client, Verdict, Wishes
from services.orchestrator.core.feeds import Feed
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.history import History
from services.orchestrator.core.intake import Intake
from services.orchestrator.core.interactions import Prompt
from services.orchestrator.core.loss import Loss, Way
from services.orchestrator.core.moves import (
    ATTEMPT_MOVES,
    GROUP_MOVES,
    REQUEST_MOVES,
    AttemptState,
    IllegalMove,
    RequestState,
    Standing,
)
from services.orchestrator.core.plan import GroupPlan, Plan, RolePlan
from services.orchestrator.core.replicas import Replica, WorkerCard
from services.orchestrator.core.tickets import Ticket
from services.orchestrator.core.timers import Timer
from stagemesh.link.core import REQUEST_SOURCE, Meter, Sender
from stagemesh.media import Modality, split_lane
from stagemesh.outcome import ErrorInfo, Timings, Usage, error_for
from stagemesh.pipeline import EdgeMode, Stage

__all__ = [
    "Attempt",
    "Client",
    "Group",
    "Loss",
    "OpenRequest",
    "Standing",
    "Verdict",
    "Way",
    "Wishes",
]


ID_BYTES: Final = 4


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


class OpenRequest:
    """A request from the door to its terminal."""

    __slots__ = (
        "admitted_s", "asked", "body", "client", "compute_s", "deadline_s", "deadline_timer",
        "end_timer", "epoch", "first_output_s", "groups", "history", "holders", "homes",
        "input_bytes", "intake", "journal_bytes", "lanes", "lanes_left", "live", "number",
        "opened_s", "partials", "plan", "prefix", "priority", "prompt", "prompts_seen",
        "renewal_timer", "request_id", "sender", "serial", "shown", "slot", "slow_timer", "started",
        "state", "stuck_since_s", "tenant", "unrecoverable", "verdict", "wishes",
    )  # fmt: skip

    def __init__(
        self,
        *,
        number: int,
        request_id: str,
        epoch: int,
        client: Client,
        slot: int,
        plan: Plan,
        body: Any,
        input_bytes: int,
        opened_s: float,
        deadline_s: float,
        serial: int = 0,
        tenant: str = "default",
        priority: int = 0,
        wishes: Wishes = NO_WISHES,
        prefix: bytes = b"",
        input_window: tuple[int, int] | None = None,
    ) -> None:
        self.number = number
        self.serial = serial
        """Its place among all that were opened here, those turned away included."""
        self.request_id = request_id
        self.epoch = epoch
        self.client = client
        self.slot = slot
        self.plan = plan
        self.body = body
        self.input_bytes = input_bytes
        self.intake = None if input_window is None else Intake.begun(self, input_window)
        """Of a client that gives its input piece by piece."""
        self.opened_s = opened_s
        self.deadline_s = deadline_s
        self.tenant = tenant
        self.priority = priority
        self.wishes = wishes
        self.prefix = prefix
        self.history = History()
        self.sender = Sender(client.window_units, client.window_bytes)
        self.live = 0
        self.journal_bytes = 0
        """What its lanes keep in memory, for those who read them or to go on after a loss."""
        self.unrecoverable = False
        """Its journal is over its bound: the next loss ends it."""
        self.prompt = Usage()
        self.prompts_seen: set[str] = set()
        """The ids of changes of the prompt; see `interactions`."""
        self.compute_s = 0.0
        self.homes: dict[str, Replica] = {}
        self.holders: dict[Replica, bool] = {}
        """Who keeps payloads for it, and whether its client was shown any of them."""
        self.asked: set[Replica] = set()
        """Who was asked to keep payloads of a lower epoch, and has not answered."""
        self.shown: dict[str, tuple[Lane, int]] = {}
        """Where the payloads stand that its client was shown."""
        self.groups = tuple(Group(request=self, plan=group) for group in plan.groups)
        self.lanes = self._make_lanes()
        self.lanes_left = len(plan.visible)
        self._begin()

    def _begin(self) -> None:
        """Set what its course changes."""
        self.stuck_since_s: float | None = None
        self.started = False
        self.admitted_s: float | None = None
        self.first_output_s: float | None = None
        self.state = REQUEST_MOVES.start
        self.verdict: Verdict | None = None
        self.partials = False
        """While it stops, its client is given what comes of its outputs."""
        self.deadline_timer: Timer | None = None
        self.end_timer: Timer | None = None
        self.slow_timer: Timer | None = None
        self.renewal_timer: Timer | None = None

    def move(self, to: RequestState) -> None:
        """Change its state by the table."""
        self.state = REQUEST_MOVES.check(self.state, to)

    @property
    def measured_bytes(self) -> int:
        """What its lanes keep, counted anew; a streamed input has a bound of its own."""
        ids = sum(lane.log.ids_counted for lane in self.lanes.values() if lane.log is not None)
        kept = sum(lane.size_bytes for lane in self.lanes.values() if lane.intake is None)
        return ID_BYTES * ids + kept

    def give_up_recovery(self) -> None:
        """Keep nothing that only another attempt would need: the next loss ends the request."""
        self.unrecoverable = True
        for lane in self.lanes.values():
            lane.log = None
            for feed in lane.feeds:
                feed.accepted = True
        for group in self.groups:
            if not group.plan.segmented:
                group.release_inputs()
        for lane in self.lanes.values():
            lane.trim()
        self.journal_bytes = self.measured_bytes

    @property
    def held(self) -> bool:
        """Whether rows wait for the client's credit."""
        return self.sender.held_units > 0 or self.sender.held_bytes > 0

    def _make_lanes(self) -> dict[int, Lane]:
        lanes: dict[int, Lane] = {}
        for group in self.groups:
            for role in group.plan.roles:
                for number in role.lanes:
                    lanes[number] = self._make_lane(number, split_lane(number).modality)
                    lanes[number].segmented = group.plan.segmented
        if self.intake is not None:
            lane = lanes[REQUEST_SOURCE] = self._make_lane(REQUEST_SOURCE, Modality.TEXT)
            lane.intake = self.intake
            self.intake.paced_by = [
                group for group in self.groups if group.plan.reads_stream(REQUEST_SOURCE)
            ]
        for group in self.groups:
            group.lanes = tuple(lanes[n] for role in group.plan.roles for n in role.lanes)
            group.sources = tuple(lanes[source.lane] for source in group.plan.sources)
        return lanes

    def _make_lane(self, number: int, modality: Modality) -> Lane:
        """Make a lane, and note who reads it, and how."""
        readers = [self.groups[at] for at in self.plan.readers.get(number, ())]
        by_segment = [group for group in readers if group.plan.reads_segments(number)]
        kept_for = len(readers) - len(by_segment)
        return Lane(
            number=number,
            modality=modality,
            visible=number in self.plan.visible,
            direct=not readers and number != REQUEST_SOURCE,
            unfed=kept_for,
            keepers=kept_for,
            packs=not by_segment,
            by_segment=by_segment,
        )
