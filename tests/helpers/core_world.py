"""Everything around an orchestrator's core, as strict as the real thing.

It objects to any effect that breaks the contract between the core and its clients and workers.
A client that mirrors is a gateway: it keeps the journal of its requests, and gives them to another
owner when it loses the one they had. What workers give is a function of its position.
"""

import copy
from collections.abc import Mapping

import msgspec

from services.orchestrator.core import events as ev
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.replicas import WorkerCard
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant, Row, Window, row_cost
from stagemesh.media import Request
from stagemesh.outcome import Outcome, Terminal
from stagemesh.pipeline import Mesh
from tests.helpers.core_checks import Checks
from tests.helpers.core_parties import Desk, WorldAttempt, WorldClient, WorldReplica, WorldRequest

__all__ = ["World"]


class World(Checks):
    """Clients, workers and a clock around one core."""

    def __init__(
        self, mesh: Mesh, settings: CoreSettings, cards: Mapping[str, WorkerCard] | None = None
    ) -> None:
        super().__init__(mesh, settings)
        self.cards |= cards or {}
        self.now_s = 0.0
        self.links = 0
        self.unlisted: set[str] = set()
        self.log: list[tuple[ev.Event, float, list[str]]] = []

    @property
    def open(self) -> list[WorldRequest]:
        """Requests whose client is there and waits for their terminal."""
        return [
            request
            for request in self.requests.values()
            if request.terminal is None and not (request.lost or request.waiting)
        ]

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
            self.check(effect)

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
                gate=replica.gate,
            )
        )

    def open_request(
        self,
        link: int,
        request: Request,
        deadline_s: float,
        *,
        streamed: bool = False,
        detach_s: float = 0.0,
    ) -> WorldRequest:
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
            said=[] if streamed else None,
            detach_s=detach_s,
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
        request.work_epoch = request.epoch
        request.lost = False
        request.window = Window(client.units, client.bytes)
        request.taken_units = request.taken_bytes = 0
        request.homes, request.tried = {}, {}
        request.fenced, request.released = set(), set()
        self._tell_request(request, 0.0)

    def _tell_request(self, request: WorldRequest, deadline_s: float) -> None:
        self.requests[request.link, request.slot] = request
        settings = self.settings
        request.input_window = Window(settings.window_units, settings.window_bytes)
        request.said_units = request.said_bytes = 0
        given = [msgspec.structs.replace(row, slot=request.slot) for row in request.said or ()]
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
                streamed=request.said is not None,
                inputs=given,
                detach_s=request.detach_s,
            )
        )

    def append(self, request: WorldRequest, row: Row) -> None:
        """Let a client give a piece of input that is in order and has its credit."""
        assert request.said is not None
        request.said.append(row)
        units, size = row_cost(row)
        request.input_window.spend(units, size)
        request.said_units += units
        request.said_bytes += size
        self.step(ev.InputsAppended(link=request.link, rows=[msgspec.structs.replace(row)]))

    def replace_owner(self) -> None:
        """Kill the core, and begin another one to which everybody dials."""
        self.core = Orchestrator(self.mesh, self.settings)
        self.desk = Desk()
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
        self.replicas[attempt.link].given_up.add(attempt.request.request_id)
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
            self.replicas[attempt.link].given_up.add(attempt.request.request_id)
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

    def abort(self, request: WorldRequest, *, partials: bool = False) -> None:
        """Abort a request at its client's wish."""
        request.stopped, request.partials = True, partials
        event = ev.AbortAsked(
            link=request.link, slot=request.slot, cause="asked", partials=partials
        )
        self.step(event)

    def abort_by_id(self, request: WorldRequest, *, partials: bool = False) -> None:
        """Abort a request as somebody does who knows only its id."""
        if not request.stopped:
            request.stopped, request.partials = True, partials
        self.step(
            ev.RequestAbortAsked(
                request_id=request.request_id,
                cause="asked",
                tenant=request.request.tenant,
                partials=partials,
            )
        )

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
