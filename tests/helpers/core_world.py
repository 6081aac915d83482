"""Everything around an orchestrator's core, as strict as the real thing.

It objects to any effect that breaks the contract between the core and its clients and workers.
"""

import copy
from dataclasses import dataclass, field

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.replicas import WorkerState
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant, Row, Window, row_cost
from stagemesh.media import Request, split_lane
from stagemesh.outcome import ErrorCode, Outcome, Terminal
from stagemesh.pipeline import Mesh

__all__ = ["World", "WorldAttempt", "WorldReplica", "WorldRequest"]


@dataclass
class WorldRequest:
    """A request as its client sees it."""

    request_id: str
    link: int
    slot: int
    model: str
    choices: int
    window: Window
    stopped: bool = False
    """It was aborted, or its client is gone: no stage may get work for it."""
    terminal: Terminal | None = None
    next: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    homes: dict[str, int] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    sent: list[Row] = field(default_factory=list)


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
    input_next: dict[int, int] = field(default_factory=dict)
    input_ended: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    aborted: bool = False
    sent_units: int = 0
    sent_bytes: int = 0

    @property
    def silent(self) -> bool:
        """Whether it has sent nothing yet."""
        return not any(self.next.values()) and not self.ended


@dataclass
class WorldReplica:
    """A worker behind one link."""

    link: int
    pool: str
    replica_id: str
    slots: int
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
    def usable(self) -> bool:
        """Whether it may get work."""
        return self.state is WorkerState.READY and self.listed and not self.superseded


class World:
    """Clients, workers and a clock around one core."""

    def __init__(self, mesh: Mesh, settings: CoreSettings) -> None:
        self.mesh = mesh
        self.settings = settings
        self.core = Orchestrator(mesh, settings)
        self.now_s = 0.0
        self.links = 0
        self.clients: dict[int, tuple[int, int]] = {}
        self.replicas: dict[int, WorldReplica] = {}
        self.requests: dict[tuple[int, int], WorldRequest] = {}
        self.by_id: dict[str, WorldRequest] = {}
        self.unlisted: set[str] = set()
        self.log: list[tuple[ev.Event, float, list[str]]] = []
        self._pipelines = {
            name: pipeline
            for pipeline in mesh.pipelines.values()
            for name in (pipeline.name, *pipeline.aliases)
        }

    @property
    def open(self) -> list[WorldRequest]:
        """Requests whose client is there and waits for their terminal."""
        return [r for r in self.requests.values() if r.terminal is None and r.link in self.clients]

    @property
    def attempts(self) -> list[WorldAttempt]:
        """Attempts that some worker still has."""
        return [a for r in self.replicas.values() for a in r.attempts.values()]

    def new_link(self) -> int:
        """Number a link."""
        self.links += 1
        return self.links

    def step(self, event: ev.Event) -> None:
        """Give the core an event, and check every effect."""
        kept = copy.deepcopy(event)  # Rows are the core's once it has them.
        effects = self.core.step(event, self.now_s)
        self.log.append((kept, self.now_s, [repr(effect) for effect in effects]))
        for effect in effects:
            self._check(effect)

    def attach_client(self, units: int, size: int) -> None:
        """Open a client link."""
        link = self.new_link()
        self.clients[link] = (units, size)
        self.step(ev.ClientAttached(link=link, window_units=units, window_bytes=size))

    def open_request(self, link: int, request: Request, deadline_s: float) -> None:
        """Open a request on a client link."""
        units, size = self.clients[link]
        number = len(self.requests) + 1
        opened = WorldRequest(
            f"r{number}", link, number, request.model, request.choices, Window(units, size)
        )
        self.requests[link, number] = self.by_id[opened.request_id] = opened
        self.step(
            ev.Opened(
                link=link,
                slot=number,
                request_id=opened.request_id,
                epoch=1,
                deadline_left_s=deadline_s,
                request=request,
                body=None,
            )
        )

    def let_go(self, attempt: WorldAttempt) -> None:
        """Let a worker forget an attempt, which frees its engine slot."""
        del self.replicas[attempt.link].attempts[attempt.slot]

    def give(self, attempt: WorldAttempt, row: Row) -> None:
        """Let a worker send an output that is in order."""
        attempt.next[row.lane] += row.units
        units, size = row_cost(row)
        attempt.window.spend(units, size)
        attempt.sent_units += units
        attempt.sent_bytes += size
        if row.body is not None and row.body.handle is not None:
            self.replicas[attempt.link].holds.add(attempt.request.request_id)
        if row.end is not None:
            attempt.ended.add(row.lane)
            if len(attempt.ended) == len(attempt.next):
                self.let_go(attempt)
        self.step(ev.RowsArrived(link=attempt.link, rows=[row]))

    def end(self, attempt: WorldAttempt, terminal: Terminal) -> None:
        """Let a worker end an attempt."""
        if terminal.outcome is Outcome.REJECTED:
            self.replicas[attempt.link].refused.add(attempt.request.request_id)
        self.let_go(attempt)
        self.step(ev.AttemptEnded(link=attempt.link, slot=attempt.slot, terminal=terminal))

    def take_inputs(self, attempt: WorldAttempt, lane: int, units: int, size: int) -> None:
        """Let a worker grant credit for an input."""
        totals = attempt.took[lane]
        totals[0] += units
        totals[1] += size
        attempt.inputs[lane].grant(attempt.input_units + totals[0], attempt.input_bytes + totals[1])
        grant = Grant(
            attempt.slot, lane, attempt.input_units + totals[0], attempt.input_bytes + totals[1]
        )
        self.step(ev.InputCreditGranted(link=attempt.link, grants=[grant]))

    def lose_replica(self, link: int) -> None:
        """Break a worker link."""
        del self.replicas[link]
        self.step(ev.ReplicaLost(link=link))

    def lose_client(self, link: int) -> None:
        """Break a client link."""
        del self.clients[link]
        for request in self.requests.values():
            if request.link == link:
                request.stopped = True
        self.step(ev.ClientLost(link=link))

    def abort(self, request: WorldRequest) -> None:
        """Abort a request at its client's wish."""
        request.stopped = True
        self.step(ev.AbortAsked(link=request.link, slot=request.slot, cause="asked"))

    def run_dry(self) -> None:
        """Let time pass, with no other event, until the core waits for nothing."""
        for _ in range(10_000):
            wakeup_s = self.core.next_wakeup_s
            if wakeup_s is None:
                return
            self.now_s = max(self.now_s, wakeup_s)
            self.step(ev.Tick())
        raise AssertionError("the core never comes to rest")

    def replayed(self) -> list[list[str]]:
        """Give what a new core orders for the same events at the same times."""
        core = Orchestrator(self.mesh, self.settings)
        return [
            [repr(effect) for effect in core.step(copy.deepcopy(event), now_s)]
            for event, now_s, _ in self.log
        ]

    def _check(self, effect: fx.Effect) -> None:
        match effect:
            case fx.SendRows(link=link, rows=rows):
                self._check_rows(link, rows)
            case fx.SendGrants(link=link, grants=grants):
                self._check_grants(self.replicas[link], grants)
            case fx.SubmitAttempts():
                self._check_submit(effect)
            case fx.AbortAttempt(link=link, slot=slot):
                self._check_abort(self.replicas[link], slot)
            case fx.EndRequest(link=link, slot=slot, terminal=terminal):
                self._check_end(self.requests[link, slot], terminal)
            case fx.ReleaseHandles(link=link, request_id=request_id):
                self._check_release(self.by_id[request_id], self.replicas[link])
            case fx.RenewHandles(link=link, request_id=request_id):
                assert self.by_id[request_id].terminal is None
                assert link not in self.by_id[request_id].released
                assert request_id in self.replicas[link].holds
            case fx.AnswerUnknown(link=link) | fx.SayGoAway(link=link):
                assert link in self.clients
            case fx.PublishModels(models=models):
                assert {model.model for model in models} == set(self._pipelines)

    def _check_rows(self, link: int, rows: list[Row]) -> None:
        assert rows, "a SendRows without rows"
        for row in rows:
            if link in self.clients:
                self._check_output(self.requests[link, row.slot], row)
            else:
                self._check_input(self.replicas[link].attempts[row.slot], row)

    def _check_release(self, request: WorldRequest, replica: WorldReplica) -> None:
        assert request.request_id in replica.holds
        assert replica.link not in request.released, "released twice"
        assert request.terminal is not None or request.link not in self.clients
        request.released.add(replica.link)

    def _check_output(self, request: WorldRequest, row: Row) -> None:
        assert request.terminal is None, "an output after the terminal"
        assert row.lane not in request.ended, "an output after its lane's end"
        assert row.pos == request.next.get(row.lane, 0), "positions skipped or repeated"
        request.next[row.lane] = row.pos + row.units
        units, size = row_cost(row)
        assert request.window.open or not (units or size), "an output without credit"
        request.window.spend(units, size)
        request.sent.append(row)
        if row.end is not None:
            request.ended.add(row.lane)

    def _check_input(self, attempt: WorldAttempt, row: Row) -> None:
        assert not attempt.aborted, "input for an attempt that was aborted"
        assert attempt.request.terminal is None, "input after the terminal"
        assert row.pos == attempt.input_next.get(row.lane, 0), "inputs skipped or repeated"
        assert row.lane not in attempt.input_ended, "input after its end"
        attempt.input_next[row.lane] = row.pos + row.units
        window = attempt.inputs[row.lane]
        units, size = row_cost(row)
        assert window.open or not (units or size), "input without credit"
        window.spend(units, size)
        if row.end is not None:
            attempt.input_ended.add(row.lane)

    def _check_grants(self, replica: WorldReplica, grants: list[Grant]) -> None:
        for grant in grants:
            attempt = replica.attempts[grant.slot]
            assert not attempt.aborted, "credit for an attempt that was aborted"
            assert grant.units <= attempt.sent_units + self.settings.window_units
            assert grant.bytes <= attempt.sent_bytes + self.settings.window_bytes
            attempt.window.grant(grant.units, grant.bytes)

    def _check_submit(self, effect: fx.SubmitAttempts) -> None:
        request = self.by_id[effect.request_id]
        replica = self.replicas[effect.link]
        stage = self._pipelines[effect.model].stages[effect.stage]
        assert request.terminal is None, "work after the terminal"
        assert not request.stopped, "work for a request that was ended"
        assert replica.usable, "work for a replica that takes none"
        assert replica.pool == stage.pool, "work for another pool's replica"
        assert len(replica.attempts) + len(effect.roles) <= replica.slots, "overbooked"
        home = self.replicas.get(request.homes.get(stage.pool, -1))
        usable = {view.link for view in self.core.replica_views() if view.usable}
        if home is not None and home.link in usable and request.request_id not in home.refused:
            assert home is replica, "a request moved though its replica could be used"
        request.homes[stage.pool] = replica.link
        for role in effect.roles:
            assert role.slot not in replica.slots_seen, "a slot used again"
            replica.slots_seen.add(role.slot)
            assert all(split_lane(lane).stage == effect.stage for lane in role.lanes)
            choice = role.role % request.choices
            sources = [source.lane for source in effect.sources if source.choice == choice]
            replica.attempts[role.slot] = WorldAttempt(
                request=request,
                link=replica.link,
                slot=role.slot,
                stage=effect.stage,
                window=Window(self.settings.window_units, self.settings.window_bytes),
                input_units=replica.units,
                input_bytes=replica.bytes,
                next=dict.fromkeys(role.lanes, 0),
                inputs={lane: Window(replica.units, replica.bytes) for lane in sources},
                took={lane: [0, 0] for lane in sources},
            )

    def _check_abort(self, replica: WorldReplica, slot: int) -> None:
        attempt = replica.attempts.get(slot)
        if attempt is None:
            assert slot not in replica.strangers, "an unknown slot answered twice"
            replica.strangers.add(slot)
            return
        assert not attempt.aborted, "aborted twice"
        attempt.aborted = True

    def _check_end(self, request: WorldRequest, terminal: Terminal) -> None:
        assert request.link in self.clients
        assert request.terminal is None, "two terminals"
        request.terminal = terminal
        if terminal.outcome is Outcome.COMPLETED:
            assert terminal.error is None
            assert request.sent
            assert set(request.next) == request.ended, "completed with an open lane"
        else:
            assert terminal.error is not None, "an end without its cause"
        if terminal.outcome is Outcome.CANCELLED:
            assert terminal.error is not None
            assert terminal.error.code is ErrorCode.ABORTED
            assert request.stopped
