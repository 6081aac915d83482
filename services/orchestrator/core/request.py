"""One open request: its groups, its lanes, and how far it is."""

from typing import Any, Final

from services.orchestrator.core.clients import NO_WISHES, Client, Verdict, Wishes
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.groups import Attempt, Group
from services.orchestrator.core.history import History
from services.orchestrator.core.intake import Intake
from services.orchestrator.core.loss import Loss, Way
from services.orchestrator.core.moves import REQUEST_MOVES, RequestState, Standing
from services.orchestrator.core.plan import Plan
from services.orchestrator.core.replicas import Replica
from services.orchestrator.core.standby import Standby
from services.orchestrator.core.timers import Timer
from stagemesh.link.core import REQUEST_SOURCE, Sender
from stagemesh.media import Modality, split_lane
from stagemesh.outcome import Usage

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


class OpenRequest:
    """A request from the door to its terminal."""

    __slots__ = (
        "admitted_s", "asked", "body", "client", "compute_s", "deadline_s", "deadline_timer",
        "end_timer", "epoch", "first_output_s", "groups", "history", "holders", "homes",
        "input_bytes", "intake", "journal_bytes", "label", "lanes", "lanes_left", "live", "number",
        "opened_s", "partials", "plan", "prefix", "priority", "prompt", "prompts_seen",
        "renewal_timer", "request_id", "sender", "serial", "shown", "slot", "slow_timer", "standby",
        "started", "state", "stuck_since_s", "tenant", "unrecoverable", "verdict", "wishes",
        "work_epoch",
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
        label: str = "",
        tenant: str = "default",
        priority: int = 0,
        wishes: Wishes = NO_WISHES,
        prefix: bytes = b"",
        input_window: tuple[int, int] | None = None,
        standby: Standby | None = None,
    ) -> None:
        self.number = number
        self.serial = serial
        """Its place among all that were opened here, those turned away included."""
        self.request_id = request_id
        self.epoch = self.work_epoch = epoch
        """Of the last `Open`; `work_epoch` is that of the one it came with, which workers know."""
        self.client = client
        self.slot = slot
        self.plan = plan
        self.body = body
        self.input_bytes = input_bytes
        self.intake = None if input_window is None else Intake.begun(self, input_window)
        """Of a client that gives its input piece by piece."""
        self.opened_s = opened_s
        self.deadline_s = deadline_s
        self.label = label  # Its client's own name for it.
        self.tenant = tenant
        self.priority = priority
        self.wishes = wishes
        self.prefix = prefix
        self.history = History()
        self.sender = Sender(client.window_units, client.window_bytes)
        self.standby = standby  # Of a detachable request.
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
        self.live = 0
        self.journal_bytes = 0
        """What its lanes keep in memory, for those who read them or to go on after a loss."""
        self.unrecoverable = False
        """Its journal is over its bound: the next loss ends it."""
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
    def mirrored(self) -> bool:
        """Whether its gateway has all that another owner would go on from."""
        return self.client.mirrors and not (self.standby is not None and self.standby.taken_over)

    @property
    def input_ended(self) -> bool:
        """Whether its client gives nothing more."""
        return self.intake is None or self.lanes[REQUEST_SOURCE].closed

    @property
    def worked_for(self) -> bool:
        """Whether what comes of its attempts counts: somebody wants it, or will."""
        orphaned = self.state is RequestState.ORPHANED and self.standby is not None
        return self.state is RequestState.RUNNING or orphaned

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
