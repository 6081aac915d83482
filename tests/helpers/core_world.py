"""Everything around an orchestrator's core, as strict as the real thing.

It objects to any effect that breaks the contract between the core and its clients and workers.
A client that mirrors is a gateway: it keeps the journal of its requests, and gives them to another
owner when it loses the one they had. What workers give is a function of its position.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract, effective
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.replicas import WorkerCard, WorkerState
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant, LaneDigest, LaneJournal, Row, Window, row_cost
from stagemesh.media import Modality, Request, split_lane
from stagemesh.outcome import ErrorCode, Outcome, Terminal
from stagemesh.pipeline import Mesh
from tests.helpers.core_gateway import GatewayJournal

__all__ = ["World", "WorldAttempt", "WorldClient", "WorldReplica", "WorldRequest", "text_at"]


def text_at(lane: int, pos: int, units: int) -> str:
    """Give what a lane says from a position on, one letter for each unit."""
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


class World:
    """Clients, workers and a clock around one core."""

    def __init__(
        self, mesh: Mesh, settings: CoreSettings, cards: Mapping[str, WorkerCard] | None = None
    ) -> None:
        self.mesh = mesh
        self.cards = dict.fromkeys(mesh.pools, WorkerCard()) | dict(cards or {})
        self.settings = settings
        self.core = Orchestrator(mesh, settings)
        self.now_s = 0.0
        self.links = 0
        self.clients: dict[int, WorldClient] = {}
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
        return [r for r in self.requests.values() if r.terminal is None and not r.lost]

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

    @property
    def orphans(self) -> list[WorldRequest]:
        """Requests that some gateway wants to give to another owner."""
        return [r for r in self.by_id.values() if r.lost and not r.stopped]

    def attach_client(self, units: int, size: int, *, mirrors: bool = False) -> int:
        """Open a client link."""
        link = self.new_link()
        self.clients[link] = WorldClient(units, size, mirrors)
        self._tell_client(link)
        return link

    def _tell_client(self, link: int) -> None:
        client = self.clients[link]
        self.step(
            ev.ClientAttached(
                link=link,
                window_units=client.units,
                window_bytes=client.bytes,
                mirrors=client.mirrors,
            )
        )

    def attach_replica(
        self, pool: str, replica_id: str, card: WorkerCard, units: int, size: int
    ) -> int:
        """Open a worker link."""
        for older in self.replicas.values():
            older.superseded |= older.replica_id == replica_id
        replica = WorldReplica(self.new_link(), pool, replica_id, card, units, size)
        replica.listed = replica_id not in self.unlisted
        self.replicas[replica.link] = replica
        self._tell_replica(replica)
        return replica.link

    def _tell_replica(self, replica: WorldReplica) -> None:
        self.step(
            ev.ReplicaAttached(
                link=replica.link,
                pool=replica.pool,
                replica_id=replica.replica_id,
                incarnation=replica.link,
                card=replica.card,
                state=replica.state,
                window_units=replica.units,
                window_bytes=replica.bytes,
            )
        )

    def open_request(self, link: int, request: Request, deadline_s: float) -> WorldRequest:
        """Open a request on a client link."""
        client = self.clients[link]
        number = len(self.by_id) + 1
        opened = WorldRequest(
            f"r{number}",
            link,
            number,
            request,
            Window(client.units, client.bytes),
            client.mirrors,
        )
        self.by_id[opened.request_id] = opened
        self._tell_request(opened, deadline_s)
        return opened

    def open_again(self, request: WorldRequest, link: int) -> None:
        """Let a gateway give a request to another owner, under the next epoch."""
        client = self.clients[link]
        self.requests.pop((request.link, request.slot), None)
        request.link, request.slot = link, 1000 * request.epoch + request.slot
        request.epoch += 1
        request.lost = False
        request.window = Window(client.units, client.bytes)
        request.taken_units = request.taken_bytes = 0
        request.homes, request.tried = {}, {}
        request.fenced, request.released = set(), set()
        self._tell_request(request, 0.0)

    def _tell_request(self, request: WorldRequest, deadline_s: float) -> None:
        self.requests[request.link, request.slot] = request
        self.step(
            ev.Opened(
                link=request.link,
                slot=request.slot,
                request_id=request.request_id,
                epoch=request.epoch,
                deadline_left_s=deadline_s,
                request=request.request,
                body=None,
                journal=request.journal.told(),
            )
        )

    def replace_owner(self) -> None:
        """Kill the core, and begin another one to which everybody dials."""
        self.core = Orchestrator(self.mesh, self.settings)
        self.log = []
        for request in self.requests.values():
            if request.terminal is None:
                self._lose_owner(request)
        self.requests.clear()
        clients, replicas = list(self.clients.values()), list(self.replicas.values())
        self.clients, self.replicas, self.unlisted = {}, {}, set()
        for client in clients:
            self.attach_client(client.units, client.bytes, mirrors=client.mirrors)
        for replica in replicas:
            self.attach_replica(
                replica.pool, replica.replica_id, replica.card, replica.units, replica.bytes
            )

    def _lose_owner(self, request: WorldRequest) -> None:
        request.lost = True
        request.stopped |= not request.mirrors

    def hand_back(self, attempt: WorldAttempt) -> None:
        """Let a worker give an attempt up in good order."""
        self.replicas[attempt.link].refused.add(attempt.request.request_id)
        self.let_go(attempt)
        self.step(ev.HandedBack(link=attempt.link, slot=attempt.slot))

    def let_go(self, attempt: WorldAttempt) -> None:
        """Let a worker forget an attempt, which frees its engine slot."""
        del self.replicas[attempt.link].attempts[attempt.slot]

    def give(self, attempt: WorldAttempt, row: Row) -> None:
        """Let a worker send an output that is in order."""
        attempt.next[row.lane] += row.units
        attempt.silent = False
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
        for request in list(self.requests.values()):
            if request.link == link and request.terminal is None:
                self._lose_owner(request)
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
            case fx.ReleaseHandles(link=link, request_id=request_id):
                self._check_release(self.by_id[request_id], self.replicas[link])
            case fx.RenewHandles(link=link, request_id=request_id):
                assert self.by_id[request_id].terminal is None
                assert link not in self.by_id[request_id].released
                assert request_id in self.replicas[link].holds
            case fx.FenceRequest(link=link, request_id=request_id, epoch=epoch):
                request = self.by_id[request_id]
                assert epoch == request.epoch > 1
                request.fenced.add(link)
            case fx.AnswerUnknown(link=link) | fx.SayGoAway(link=link):
                assert link in self.clients
            case fx.PublishModels(models=models):
                assert {model.model for model in models} == set(self._pipelines)
            case _:
                self._check_news(effect)

    def _check_news(self, effect: fx.Effect) -> None:
        """Check what a client is told of its request, apart from rows."""
        match effect:
            case fx.EndRequest(link=link, slot=slot, terminal=terminal):
                self._check_end(self.requests[link, slot], terminal)
            case fx.PlaceNotice(link=link, slot=slot, placed=placed):
                request = self.requests[link, slot]
                assert request.mirrors
                assert not request.lost
                request.journal.placed[placed.stage, placed.role] = placed
            case fx.ResetLanes(link=link, slot=slot, stages=stages):
                request = self.requests[link, slot]
                assert request.mirrors
                request.journal.reset(stages)
            case fx.HandBackRequest(link=link, slot=slot):
                request = self.requests.pop((link, slot))
                assert request.mirrors, "only a gateway can open a request elsewhere"
                assert request.terminal is None
                request.lost = True
            case fx.DropRequest(link=link, slot=slot, request_id=request_id):
                request = self.by_id[request_id]
                assert request.lost or (request.link, request.slot) != (link, slot)
            case _:
                raise AssertionError(effect)

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
        assert request.terminal is not None or request.lost
        request.released.add(replica.link)

    def _check_output(self, request: WorldRequest, row: Row) -> None:
        assert request.terminal is None, "an output after the terminal"
        assert not request.lost, "an output for a gateway that is gone"
        assert row.visible or request.mirrors, "a hidden output for a client that keeps no journal"
        request.journal.take(row)
        assert row.text in ("", text_at(row.lane, row.pos, row.units)), "another text than before"
        if not row.visible:
            return
        units, size = row_cost(row)
        assert request.window.open or not (units or size), "an output without credit"
        request.window.spend(units, size)
        request.taken_units += units
        request.taken_bytes += size

    def _check_input(self, attempt: WorldAttempt, row: Row) -> None:
        request = attempt.request
        assert not attempt.aborted, "input for an attempt that was aborted"
        assert request.terminal is None, "input after the terminal"
        assert not request.lost, "input for a request that has no owner"
        if row.lane not in attempt.input_next and attempt.contract is ResumeContract.PER_INPUT:
            attempt.input_next[row.lane] = row.pos
        assert row.pos == attempt.input_next.get(row.lane, 0), "inputs skipped or repeated"
        assert row.lane not in attempt.input_ended, "input after its end"
        assert row.text in ("", text_at(row.lane, row.pos, row.units)), "another text than before"
        if request.mirrors and self._contract(request, row.lane) is not ResumeContract.REPLAY:
            assert request.journal.has(row), "an effect may come before its cause"
        attempt.input_next[row.lane] = row.pos + row.units
        window = attempt.inputs[row.lane]
        units, size = row_cost(row)
        assert window.open or not (units or size), "input without credit"
        window.spend(units, size)
        if row.end is not None:
            attempt.input_ended.add(row.lane)

    def _contract(self, request: WorldRequest, lane: int) -> ResumeContract:
        stage = self._pipelines[request.request.model].stages[split_lane(lane).stage]
        return effective(self.cards[stage.pool])

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
        assert not request.lost, "work for a request that has no owner"
        assert effect.epoch == request.epoch, "work under an old epoch"
        assert replica.usable, "work for a replica that takes none"
        assert replica.pool == stage.pool, "work for another pool's replica"
        assert len(replica.attempts) + len(effect.roles) <= replica.slots, "overbooked"
        if request.epoch > 1:
            assert replica.link in request.fenced or replica.link > max(request.fenced, default=0)
        home = self.replicas.get(request.homes.get(stage.pool, -1))
        usable = {view.link for view in self.core.replica_views() if view.usable}
        if home is not None and home.link in usable and request.request_id not in home.refused:
            assert home is replica, "a request moved though its replica could be used"
        request.homes[stage.pool] = replica.link
        marks = {mark.lane: mark for mark in effect.resume}
        for role in effect.roles:
            self._check_role(effect, role, marks)
            assert role.slot not in replica.slots_seen, "a slot used again"
            replica.slots_seen.add(role.slot)
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
                next={lane: marks[lane].next if lane in marks else 0 for lane in role.lanes},
                ended={lane for lane in role.lanes if lane in marks and marks[lane].end},
                inputs={lane: Window(replica.units, replica.bytes) for lane in sources},
                took={lane: [0, 0] for lane in sources},
                contract=effect.contract or effective(replica.card),
                ids=role.token_ids,
            )

    def _check_role(
        self, effect: fx.SubmitAttempts, role: fx.RoleOrder, marks: dict[int, LaneJournal]
    ) -> None:
        request = self.by_id[effect.request_id]
        key = (effect.stage, role.role)
        assert effect.attempt > request.tried.get(key, 0), "attempts go up"
        request.tried[key] = effect.attempt
        assert all(split_lane(lane).stage == effect.stage for lane in role.lanes)
        if request.mirrors:
            placed = request.journal.placed[key]
            assert (placed.attempt, placed.incarnation) == (effect.attempt, effect.link)
        for number in role.lanes:
            given = request.journal.lanes.get(number)
            mark = marks.get(number)
            if mark is None:
                assert given is None or not given.visible, "the client would get it again"
                continue
            self._check_mark(effect, mark)
            if given is not None and given.visible and effect.contract is not None:
                exact = effect.contract is not ResumeContract.PER_INPUT
                assert mark.next >= given.cursor.next if exact else True

    def _check_mark(self, effect: fx.SubmitAttempts, mark: LaneJournal) -> None:
        text = split_lane(mark.lane).modality is Modality.TEXT
        assert effect.contract is not ResumeContract.NONE
        if effect.contract is ResumeContract.TOKENS and text:
            assert mark.ids == list(range(mark.next)), "ids that it did not give"
        if mark.digest and text:
            whole = LaneDigest()
            whole.add_bytes(text_at(mark.lane, 0, mark.next).encode())
            assert mark.digest == whole.value, "a digest of something else"

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
        shown = [lane for lane in request.journal.lanes.values() if lane.visible]
        if terminal.outcome is Outcome.COMPLETED:
            assert terminal.error is None
            assert shown
            assert all(lane.cursor.ended for lane in shown), "completed with an open lane"
            units = sum(
                lane.cursor.next
                for lane in shown
                if split_lane(lane.number).modality is Modality.TEXT
            )
            assert terminal.usage.completion_tokens == units
        else:
            assert terminal.error is not None, "an end without its cause"
        if terminal.outcome is Outcome.CANCELLED:
            assert terminal.error is not None
            assert terminal.error.code is ErrorCode.ABORTED
            assert request.stopped
