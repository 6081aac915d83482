"""A core with one client and some replicas, for tests that look at single effects."""

from collections.abc import Sequence
from typing import TypeVar

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.replicas import LoadReport, WorkerCard, WorkerState
from services.orchestrator.core.settings import CoreSettings
from stagemesh.control import Answer, Gate
from stagemesh.link.core import REQUEST_SOURCE, Journal, LaneJournal, Placed, Row
from stagemesh.media import Message, Modality, Params, Part, Request, TextPart, lane_of
from stagemesh.outcome import End, FinishReason, error_for
from stagemesh.pipeline import Mesh
from tests.helpers.core_mesh import core_mesh

__all__ = ["END", "CoreStage", "make_request", "of_kind"]

END = End(finish_reason=FinishReason.STOP)
OPEN = Gate()
E = TypeVar("E", bound=fx.Effect)


def make_request(
    model: str = "echo",
    *parts: Part,
    give: tuple[Modality, ...] = (),
    choices: int = 1,
    params: Params | None = None,
) -> Request:
    """Make a request of one user message; its text is `hi` unless parts are given."""
    return Request(
        model=model,
        messages=(Message(role="user", parts=parts or (TextPart("hi"),)),),
        modalities=give,
        choices=choices,
        params=params or Params(),
    )


class CoreStage:
    """The core, a client on link 1, and replicas on the links that `replica` returns."""

    CLIENT = 1

    def __init__(
        self,
        settings: CoreSettings | None = None,
        *,
        units: int = 64,
        mirrors: bool = False,
        mesh: Mesh | None = None,
    ) -> None:
        self.core = Orchestrator(mesh or core_mesh(), settings or CoreSettings())
        self.card = WorkerCard(slots=4)
        self.now_s = 0.0
        self._links = 1
        self._slots = 0
        self._appended: dict[int, int] = {}
        self.do(
            ev.ClientAttached(
                link=self.CLIENT, window_units=units, window_bytes=1 << 20, mirrors=mirrors
            )
        )

    def do(self, event: ev.Event) -> list[fx.Effect]:
        """Step an event now."""
        return self.core.step(event, self.now_s)

    def wait(self, seconds: float) -> list[fx.Effect]:
        """Let time pass, and tell the core."""
        self.now_s += seconds
        return self.do(ev.Tick())

    def replica(
        self,
        pool: str,
        contract: ResumeContract = ResumeContract.NONE,
        *,
        deterministic: bool = True,
        slots: int = 4,
        units: int = 64,
        size: int = 1 << 20,
    ) -> tuple[int, list[fx.Effect]]:
        """Attach a replica; give its link, and what follows."""
        self._links += 1
        effects = self.do(
            ev.ReplicaAttached(
                link=self._links,
                pool=pool,
                replica_id=f"{pool}-{self._links}",
                incarnation=self._links,
                card=WorkerCard(slots=slots, resume_contract=contract, deterministic=deterministic),
                state=WorkerState.READY,
                window_units=units,
                window_bytes=size,
            )
        )
        return self._links, effects

    def report(
        self,
        link: int,
        state: WorkerState | None = None,
        gate: Gate = OPEN,
        *,
        steps: int = 0,
    ) -> list[fx.Effect]:
        """Let a replica tell of itself; it is ready, or paused if its gate is not open."""
        state = state or (WorkerState.READY if gate == OPEN else WorkerState.PAUSED)
        load = LoadReport(steps=steps)
        return self.do(ev.ReplicaReported(link=link, state=state, load=load, gate=gate))

    def carried_out(self, order: fx.AskWorker, reason: str = "") -> list[fx.Effect]:
        """Let a replica answer a control call; with a reason it failed."""
        answer = Answer(error=error_for(reason) if reason else None)
        return self.do(ev.ControlDone(link=order.link, control_id=order.control_id, answer=answer))

    def lose(self, link: int) -> list[fx.Effect]:
        """Lose a replica, and wait for as long as a first re-drive may wait."""
        return self.do(ev.ReplicaLost(link=link)) + self.wait(0.05)

    def open(
        self,
        request: Request,
        *,
        deadline_s: float = 0.0,
        epoch: int = 1,
        lanes: Sequence[LaneJournal] = (),
        placed: Sequence[Placed] = (),
        revision: str = "",
    ) -> tuple[int, list[fx.Effect]]:
        """Open a request; give its slot, and what follows. Its id is `r` and the slot."""
        self._slots += 1
        effects = self.do(
            ev.Opened(
                link=self.CLIENT,
                slot=self._slots,
                request_id=f"r{self._slots}",
                epoch=epoch,
                deadline_left_s=deadline_s,
                request=request,
                body="as it came",
                journal=Journal(lanes=[*lanes], placed=[*placed], revision=revision),
            )
        )
        return self._slots, effects

    def converse(self, request: Request) -> tuple[int, list[fx.Effect]]:
        """Open a request whose client gives its input piece by piece."""
        self._slots += 1
        self._appended[self._slots] = 0
        effects = self.do(
            ev.Opened(
                link=self.CLIENT,
                slot=self._slots,
                request_id=f"r{self._slots}",
                epoch=1,
                deadline_left_s=0.0,
                request=request,
                body="as it came",
                streamed=True,
            )
        )
        return self._slots, effects

    def append(
        self, slot: int, text: str = "", *, segment_end: bool = False, end: bool = False
    ) -> list[fx.Effect]:
        """Give the next piece of a conversation's input, or its bare end."""
        row = Row(slot, REQUEST_SOURCE, self._appended[slot], 0 if end else 1, text)
        row.segment_end, row.end = segment_end, END if end else None
        self._appended[slot] += row.units
        return self.do(ev.InputsAppended(link=self.CLIENT, rows=[row]))

    def rows(self, link: int, *rows: Row) -> list[fx.Effect]:
        """Let a worker send rows in one message."""
        return self.do(ev.RowsArrived(link=link, rows=list(rows)))

    @staticmethod
    def text(
        slot: int, pos: int, text: str, *, stage: int = 0, role: int = 0, end: bool = False
    ) -> Row:
        """Make a row of one unit of text, or the bare end of a lane where there is none."""
        lane = lane_of(stage, role, Modality.TEXT)
        return Row(slot, lane, pos, 1 if text else 0, text, end=END if end else None)


def of_kind(effects: list[fx.Effect], kind: type[E]) -> list[E]:
    """Give the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]
