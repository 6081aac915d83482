"""A world in which everybody does what is right, but for losses."""

from typing import TypeVar

from hypothesis import strategies as st

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import LoadReport, WorkerCard
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Modality, split_lane
from stagemesh.outcome import End, FinishReason
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_parties import WorldAttempt, WorldRequest, text_at
from tests.helpers.core_world import World

__all__ = ["CALM_ROUNDS", "END", "LOSSES", "UNITS", "LosingMesh", "gaps_between"]

T = TypeVar("T")

UNITS = 40
ROUNDS = 400
CALM_ROUNDS = 6
"""Between two losses every stage moves, else they would be blamed on the request."""
LOSSES = ("replica", "hand-back", "unknown", "stall", "owner", "gateway link")
END = End(finish_reason=FinishReason.STOP)
TOKENS = WorkerCard(slots=8, resume_contract=ResumeContract.TOKENS)
REPLAY = WorkerCard(slots=8, resume_contract=ResumeContract.REPLAY, deterministic=True)
PER_INPUT = WorkerCard(slots=8, resume_contract=ResumeContract.PER_INPUT, deterministic=True)
CARDS = {
    "thinker": (TOKENS, REPLAY),
    "coder": (TOKENS, REPLAY, PER_INPUT),
    "listener": (TOKENS, REPLAY),
    "mixer": (TOKENS, REPLAY),
    "talker": (REPLAY, PER_INPUT),
    "encoder": (REPLAY,),
    "painter": (REPLAY,),
}


def gaps_between(data: st.DataObject, losses: list[str]) -> list[int]:
    """Draw the rounds in which something is lost, each after some calm."""
    gaps = [data.draw(st.integers(CALM_ROUNDS, 3 * CALM_ROUNDS)) for _ in losses]
    return [sum(gaps[: index + 1]) for index in range(len(gaps))]


class LosingMesh:
    """Two replicas of every pool, and a gateway."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._steps = 0
        cards = {pool: self.pick(options) for pool, options in sorted(CARDS.items())}
        self.world = World(core_mesh(), CoreSettings(stall_s=5.0, orchestrators=2), cards)
        self.gate = self.world.attach_client(self.pick((2, 64)), 1 << 20, mirrors=True)
        for pool, card in cards.items():
            for twin in range(2):
                self.world.attach_replica(pool, f"{pool}-{twin}", card, self.pick((3, 64)), 1 << 20)

    def pick(self, among: "tuple[T, ...] | list[T]") -> T:
        """Choose one."""
        return among[self._data.draw(st.integers(0, len(among) - 1))]

    def run(self, request: WorldRequest, losses: list[str], at: list[int]) -> None:
        """Let everybody work until the request has ended."""
        for round_ in range(ROUNDS):
            self.world.now_s += 0.1
            self.world.step(ev.Tick())
            if request.terminal is not None:
                return
            if losses and round_ >= at[0]:
                del at[0]
                self.lose(losses.pop(), request)
            self.take(request)
            self.speak(request)
            for attempt in self.world.attempts:
                self.work(attempt)

    def speak(self, request: WorldRequest) -> None:
        """Let a client go on with its input; one whose request came whole has said it all."""

    def work(self, attempt: WorldAttempt) -> None:
        """Let a worker take its inputs and give one output of each lane; or answer an abort."""
        world = self.world
        if attempt.aborted:
            world.let_go(attempt)
            world.step(ev.AttemptUnknown(link=attempt.link, slot=attempt.slot))
            return
        for lane in sorted(attempt.inputs):
            world.take_inputs(attempt, lane, 3, 1 << 20)
        for lane in sorted(attempt.next.keys() - attempt.ended):
            if attempt.slot in world.replicas[attempt.link].attempts and not attempt.aborted:
                self.say(attempt, lane)

    def say(self, attempt: WorldAttempt, lane: int) -> None:
        """Let a worker give the next unit of a lane."""
        pos = attempt.next[lane]
        if not attempt.window.open:
            return
        if pos >= UNITS:
            self.world.give(attempt, Row(attempt.slot, lane, pos, 0, end=END))
            return
        row = Row(attempt.slot, lane, pos, 1, end=END if pos == UNITS - 1 else None)
        if split_lane(lane).modality is Modality.TEXT:
            row.text = text_at(lane, pos, 1)
            row.ids = [pos] if attempt.ids else None
        else:
            row.body = Body(inline=b"xy")
        if attempt.contract is ResumeContract.PER_INPUT:
            row.origin = (pos // 3, pos // 3 + 1)
        self.world.give(attempt, row)

    def take(self, request: WorldRequest) -> None:
        """Let the client take what it was sent."""
        if request.lost:
            return
        client = self.world.clients[request.link]
        totals = (client.units + request.taken_units, client.bytes + request.taken_bytes)
        request.window.grant(*totals)
        grant = Grant(request.slot, 0, *totals)
        self.world.step(ev.CreditGranted(link=request.link, grants=[grant]))

    def lose(self, what: str, request: WorldRequest) -> None:
        """Lose something that the request needs; what a gateway has to do, it does."""
        world = self.world
        busy = [attempt for attempt in world.attempts if not attempt.aborted]
        if what == "owner":
            world.replace_owner()
        elif what == "gateway link":
            client = world.clients[request.link]
            world.lose_client(request.link)
            world.attach_client(client.units, client.bytes, mirrors=True)
        elif busy:
            self.lose_attempt(what, self.pick(busy))
        if request.lost:
            world.open_again(request, next(iter(world.clients)))

    def lose_attempt(self, what: str, attempt: WorldAttempt) -> None:
        """Lose an attempt, perhaps with all that its replica has."""
        world = self.world
        replica = world.replicas[attempt.link]
        if what == "replica":
            world.lose_replica(replica.link)
            world.attach_replica(
                replica.pool, replica.replica_id, replica.card, replica.units, replica.bytes
            )
        elif what == "hand-back":
            world.hand_back(attempt)
        elif what == "unknown":
            world.let_go(attempt)
            world.step(ev.AttemptUnknown(link=attempt.link, slot=attempt.slot))
        else:
            self.stand_still()

    def stand_still(self) -> None:
        """Let all replicas make no step for a while, and then go on."""
        world = self.world
        world.now_s += 11.0
        world.step(ev.Tick())
        self._steps += 1
        for replica in world.replicas.values():
            load = LoadReport(steps=self._steps)
            world.step(ev.ReplicaReported(link=replica.link, state=replica.state, load=load))
