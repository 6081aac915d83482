"""Clients and workers around an orchestrator's core, as values, and what workers say."""

from collections.abc import Collection
from dataclasses import dataclass, field

from services.orchestrator.core import effects as fx
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import WorkerCard, WorkerState
from stagemesh.control import OPEN, Call, Gate
from stagemesh.link.core import Row, Window
from stagemesh.media import Handle, Request
from stagemesh.outcome import End, Terminal
from tests.helpers.core_gateway import GatewayJournal

__all__ = ["Desk", "WorldAttempt", "WorldClient", "WorldReplica", "WorldRequest", "text_at"]


def text_at(lane: int, pos: int, units: int, *, plain: bool = False) -> str:
    """Give what a lane says from a position on, one letter for each unit.

    `plain` is for stages that run by segments: where a run stands in its lane no worker knows.
    """
    if plain:
        return "z" * units
    return "".join(chr(97 + (lane + at) % 26) for at in range(pos, pos + units))


@dataclass
class WorldClient:
    """A client link."""

    units: int
    bytes: int
    mirrors: bool


@dataclass
class WorldRequest:
    """A request as its client sees it."""

    request_id: str
    link: int
    slot: int
    request: Request
    window: Window
    mirrors: bool
    epoch: int = 1
    partials: bool = False
    """It was aborted, and what comes of it needs no credit."""
    stopped: bool = False
    """It was aborted, or its client is gone: no stage may get work for it."""
    lost: bool = False
    """It has no owner."""
    terminal: Terminal | None = None
    journal: GatewayJournal = field(default_factory=GatewayJournal)
    homes: dict[str, int] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    fenced: set[int] = field(default_factory=set)
    tried: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last attempt of each stage and role under this epoch."""
    taken_units: int = 0
    taken_bytes: int = 0
    said: list[Row] | None = None
    """What its client appended, if it gives its input piece by piece."""
    input_window: Window = field(default_factory=lambda: Window(0, 0))
    said_units: int = 0
    said_bytes: int = 0
    """Of it, what its present owner was given for credit."""

    asked: list[str] = field(default_factory=list)
    """The changes of its prompt that nobody has answered."""

    detach_s: float = 0.0
    waiting: bool = False
    """Its gateway is lost, and its owner keeps it for the next."""
    taken_over: bool = False
    """Its gateway knows what the client was given, and nothing else."""
    work_epoch: int = 1
    """Under which workers know it."""
    sent_to: dict[int, int] = field(default_factory=dict)
    """How far each lane was sent to the gateway before."""
    sent: list[Row] = field(default_factory=list)
    """What its gateway was sent and has not committed."""
    committed: dict[int, tuple[int, End | None]] = field(default_factory=dict)
    confirmed_units: int = 0
    confirmed_bytes: int = 0
    """Of what its present gateway was sent."""
    owner_since: int = 1
    gone: bool = False
    """Its gateway is lost, and with it its journal."""

    @property
    def plain(self) -> bool:
        """Whether its stages run once for each segment."""
        return self.request.model == "turns" and self.said is not None

    @property
    def said_all(self) -> bool:
        """Whether its input is complete, or there is none."""
        return self.said is None or bool(self.said and self.said[-1].end)

    @property
    def choices(self) -> int:
        """How many choices were asked for."""
        return self.request.choices


@dataclass
class WorldAttempt:
    """An attempt as its worker sees it, until the worker lets go of it."""

    request: WorldRequest
    link: int
    slot: int
    stage: int
    window: Window
    input_units: int
    input_bytes: int
    next: dict[int, int]
    inputs: dict[int, Window]
    took: dict[int, list[int]]
    contract: ResumeContract
    ids: bool
    input_next: dict[int, int] = field(default_factory=dict)
    input_ended: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    prompts: list[str] = field(default_factory=list)
    """Those that it was given and has not answered."""
    aborted: bool = False
    silent: bool = True
    """It has sent nothing yet."""
    sent_units: int = 0
    sent_bytes: int = 0

    @property
    def handle(self) -> Handle:
        """What stands for the bytes that it keeps for its request."""
        return Handle(
            handle_id=f"h{self.request.request_id}",
            request_id="",
            holder_id="",
            incarnation=1,
            address="",
            size_bytes=9,
        )


@dataclass
class WorldReplica:
    """A worker behind one link."""

    link: int
    pool: str
    replica_id: str
    card: WorkerCard
    units: int
    bytes: int
    state: WorkerState = WorkerState.READY
    gate: Gate = OPEN
    listed: bool = True
    superseded: bool = False
    attempts: dict[int, WorldAttempt] = field(default_factory=dict)
    slots_seen: set[int] = field(default_factory=set)
    strangers: set[int] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    """Requests that it would not take, or that it stood still under."""
    holds: set[str] = field(default_factory=set)

    @property
    def slots(self) -> int:
        """How many attempts it runs at once."""
        return self.card.slots

    @property
    def usable(self) -> bool:
        """Whether it may get work."""
        return self.state is WorkerState.READY and self.listed and not self.superseded


@dataclass
class Desk:
    """What operators have asked of one owner: every call is answered once, for every replica."""

    waiting: dict[int, float] = field(default_factory=dict)
    """The calls that are not answered, and how long each is waited for."""
    asks: dict[tuple[int, int], Call] = field(default_factory=dict)
    """What workers were asked and have not answered, by link and number."""
    seen: set[int] = field(default_factory=set)
    calls: int = 0

    def open(self, wait_s: float) -> int:
        """Number a call."""
        self.calls += 1
        self.waiting[self.calls] = wait_s
        return self.calls

    def take(self, effect: fx.AskWorker | fx.AnswerControl, links: Collection[int]) -> None:
        """Hear of a call to a worker, or of an answer."""
        if isinstance(effect, fx.AskWorker):
            assert effect.link in links, "a call to a worker that is gone"
            assert effect.control_id not in self.seen, "a number used again"
            self.seen.add(effect.control_id)
            self.asks[effect.link, effect.control_id] = effect.call
            return
        del self.waiting[effect.call_id]
        names = [(one.replica_id, one.incarnation) for one in effect.results]
        assert len(names) == len(set(names)), "two results of one replica"
        assert all(one.took_s >= 0 for one in effect.results)
