"""What the core knows of replicas."""

from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from services.orchestrator.core.budget import RetryBudget
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.strangers import Strangers
from services.orchestrator.core.tickets import TicketQueue
from services.orchestrator.core.wills import NO_WILL
from stagemesh.control import OPEN, ControlSupport, Gate, PauseMode
from stagemesh.link.core import SlotMint
from stagemesh.media import Modality
from stagemesh.pipeline import ReplicaChoice

if TYPE_CHECKING:
    from services.orchestrator.core.request import Attempt
    from services.orchestrator.core.timers import Timer

__all__ = ["LoadReport", "Replica", "ReplicaPool", "WorkerCard", "WorkerState"]


class WorkerState(IntEnum):
    """Whether a worker takes new attempts: the same numbers as `ProcessState` in `link.proto`."""

    STARTING = 1
    READY = 2
    DRAINING = 3
    STALLED = 4
    PAUSED = 5
    ASLEEP = 6


_HELD: Final = frozenset({WorkerState.PAUSED, WorkerState.ASLEEP})


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker said of its engine, as far as decisions need it."""

    engine: str = ""
    model: str = ""
    input_modalities: frozenset[Modality] = frozenset()
    output_modalities: frozenset[Modality] = frozenset()
    slots: int = 1
    context_tokens_max: int = 0
    interactions: bool = False
    """Whether it takes another prompt for what it is making."""
    resume_contract: ResumeContract = ResumeContract.NONE
    deterministic: bool = False
    params: frozenset[str] = frozenset()
    """The fields of a request's parameters that it minds; none means that it does not tell."""
    control: ControlSupport = ControlSupport()


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a worker said it is; `steps` counts engine steps since its start."""

    running: int = 0
    waiting: int = 0
    steps: int = 0


class Replica:
    """One worker link: a replica in one incarnation.

    An engine slot is taken from the submission until the worker lets go of the attempt, whatever
    became of its request: `attempts` holds those that a request waits for, `leftovers` the lanes
    that still have to end of those that none does.
    """

    __slots__ = (
        "asked", "attempts", "card", "gate", "incarnation", "leftovers", "link", "listed", "lost",
        "mint", "obeys", "others", "owed", "pool", "progress_s", "replica_id", "shown",
        "stall_timer", "stalled", "state", "steps", "strangers", "superseded", "tickets",
        "window_bytes", "window_units",
    )  # fmt: skip

    def __init__(
        self,
        *,
        link: int,
        pool: "ReplicaPool",
        replica_id: str,
        incarnation: int,
        card: WorkerCard,
        state: WorkerState,
        window_units: int,
        window_bytes: int,
        gate: Gate = OPEN,
    ) -> None:
        self.link = link
        self.pool = pool
        self.replica_id = replica_id
        self.incarnation = incarnation
        self.card = card
        self.state = state
        self.window_units = window_units
        self.window_bytes = window_bytes
        self.gate = gate
        self.obeys = False
        """Its gate is what operators want of its pool, as far as is known here."""
        self.asked = 0
        """Calls that it has not answered: what its gate says meanwhile may be undone."""
        self.owed = 0
        """Calls that make it so and that it has not answered."""
        self.shown: object = None
        """What operators saw of it last."""
        self.listed = True
        self.superseded = False
        self.stalled = False
        self.lost = False
        self.others = 0
        self.steps = 0
        self.progress_s = 0.0
        self.stall_timer: Timer | None = None
        self.mint = SlotMint()
        self.attempts: dict[int, Attempt] = {}
        self.leftovers: dict[int, set[int]] = {}
        self.tickets = TicketQueue()
        self.strangers = Strangers()

    @property
    def in_flight(self) -> int:
        """How many engine slots this orchestrator holds here."""
        return len(self.attempts) + len(self.leftovers)

    @property
    def free(self) -> int:
        """How many engine slots this orchestrator may still take."""
        return self.card.slots - self.in_flight

    @property
    def slots(self) -> int:
        """How many engine slots it has in all."""
        return self.card.slots

    @property
    def busy(self) -> int:
        """How many attempts it has, with what other orchestrators gave it as far as it is known."""
        return self.in_flight + self.others

    @property
    def usable(self) -> bool:
        """Whether it may get new attempts, as soon as it has room."""
        return (
            self.state is WorkerState.READY
            and self.listed
            and not (self.superseded or self.stalled or self.lost or self.owed)
        )

    @property
    def held(self) -> bool:
        """Whether it takes nothing by an operator's will, until that is undone."""
        return self.state in _HELD and not (self.superseded or self.lost)

    @property
    def still(self) -> bool:
        """Whether it makes no step by an operator's will, also while it is being drained."""
        return self.held or self.gate.paused is PauseMode.KEEP

    @property
    def seen(self) -> tuple[WorkerState, Gate, bool, bool]:
        """What operators see of it, apart from how busy it is."""
        state = WorkerState.STALLED if self.stalled else self.state
        return state, self.gate, self.listed, self.usable

    def reported(self, load: LoadReport) -> None:
        """Take note of a load report; what is not ours there is others'."""
        self.others = max(0, load.running + load.waiting - self.in_flight)


class ReplicaPool:
    """The replicas of one pool, in the order in which they attached."""

    def __init__(
        self,
        name: str,
        budget: RetryBudget,
        choice: ReplicaChoice = ReplicaChoice.LEAST_LOADED,
    ) -> None:
        self.name = name
        self.budget = budget
        self.choice = choice
        self.chosen_last = ""
        """The id of the replica that a request without a home got last."""
        self.card: WorkerCard | None = None
        """Of the replica that attached last, even if it is gone."""
        self.replicas: list[Replica] = []
        self.tickets = TicketQueue()
        self.empty_since_s = -inf
        """Since when no replica can be used; infinite while one can, and while it is closed."""
        self.will = NO_WILL
        """What operators want of every replica, those to come included."""
        self.was_closed = False
        """Whether it was closed when that was last looked at."""

    @property
    def usable(self) -> list[Replica]:
        """Those that may get new attempts."""
        return [replica for replica in self.replicas if replica.usable]

    @property
    def ready(self) -> bool:
        """Whether there is one that may get new attempts."""
        return any(replica.usable for replica in self.replicas)

    @property
    def closed(self) -> bool:
        """Whether it takes nothing by an operator's will: it is opened again, so one can wait."""
        return not self.ready and (
            self.will.closes or any(replica.held for replica in self.replicas)
        )

    @property
    def context_tokens(self) -> int:
        """The smallest context among usable replicas; 0 if none has a limit."""
        rooms = (replica.card.context_tokens_max for replica in self.usable)
        return min((room for room in rooms if room), default=0)
