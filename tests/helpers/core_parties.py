"""Clients and workers around an orchestrator's core, as values, and what workers say."""

from dataclasses import dataclass, field

from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import WorkerCard, WorkerState
from stagemesh.link.core import Row, Window
from stagemesh.media import Request
from stagemesh.outcome import Terminal
from tests.helpers.core_gateway import GatewayJournal

__all__ = ["WorldAttempt", "WorldClient", "WorldReplica", "WorldRequest", "text_at"]


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
    listed: bool = True
    superseded: bool = False
    attempts: dict[int, WorldAttempt] = field(default_factory=dict)
    slots_seen: set[int] = field(default_factory=set)
    strangers: set[int] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    holds: set[str] = field(default_factory=set)

    @property
    def slots(self) -> int:
        """How many attempts it runs at once."""
        return self.card.slots

    @property
    def usable(self) -> bool:
        """Whether it may get work."""
        return self.state is WorkerState.READY and self.listed and not self.superseded
