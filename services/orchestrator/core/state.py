"""Everything that the core remembers; the other modules change it."""

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from services.orchestrator.core.admission import Admission
from services.orchestrator.core.budget import RetryBudget
from services.orchestrator.core.door import Door
from services.orchestrator.core.effects import PublishedModel, PublishModels
from services.orchestrator.core.history import Entry, Kind
from services.orchestrator.core.orders import Orders
from services.orchestrator.core.replicas import Replica, ReplicaPool
from services.orchestrator.core.request import Attempt, Client, Group, OpenRequest
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.core.tickets import TicketQueue
from services.orchestrator.core.timers import Due, Timer, Timers
from services.orchestrator.core.tombstones import Tombstones
from services.orchestrator.core.views import Counts, RequestView
from stagemesh.pipeline import Mesh

if TYPE_CHECKING:
    from services.orchestrator.core.control import ControlCall

__all__ = ["State"]


class State:
    """The core's memory, its clock, and the effects of the step under way.

    `touched` holds the requests that may have something to do next, `roomy` the pools that may have
    room for an attempt; a step is over when both are empty.
    """

    def __init__(self, mesh: Mesh, settings: CoreSettings) -> None:
        self.mesh = mesh
        self.settings = settings
        self.now_s = 0.0
        self.draining = False
        self.orders = Orders()
        self.timers = Timers()
        self.counts = Counts()
        self.door = Door(mesh, settings.door)
        weights = {name: tenant.weight for name, tenant in mesh.tenants.items()}
        self.admissions = {
            pipeline.name: Admission(
                pipeline,
                orchestrators=settings.orchestrators,
                retry_after_s=settings.retry_after_s,
                weights=weights,
            )
            for pipeline in mesh.pipelines.values()
        }
        self.pools = {
            name: ReplicaPool(name, self._budget(), pool.replica_choice)
            for name, pool in mesh.pools.items()
        }
        self.replicas: dict[int, Replica] = {}
        self.unlisted: OrderedDict[str, None] = OrderedDict()
        self.clients: dict[int, Client] = {}
        self.requests: dict[str, OpenRequest] = {}
        self.held: dict[OpenRequest, None] = {}
        """Those that wait for a closed pool, at most as many of a pipeline as may wait."""
        self.controls: dict[int, ControlCall] = {}
        """The open control calls, by each number that was not answered yet."""
        self.control_ids = 0
        self.drained: OrderedDict[str, float] = OrderedDict()
        """The replicas that operators have taken out, and how long their attempts may go on."""
        self.drain_timer: Timer | None = None
        self.changes = 0
        """How often anything of the replicas, or of this process, has changed for operators."""
        self.requests_seen = 0
        self.opens_seen = 0
        self.tombstones = Tombstones(count_max=settings.tombstones_max, keep_s=settings.tombstone_s)
        # Whoever asks makes these, so they have a bound of their own.
        self.refusals = Tombstones(count_max=settings.refusals_max, keep_s=settings.tombstone_s)
        self.tombstones_timer: Timer | None = None
        self.recent: OrderedDict[str, RequestView] = OrderedDict()
        self.touched: dict[OpenRequest, None] = {}
        self.roomy: dict[ReplicaPool, None] = {}
        self.published = self.models()

    def _budget(self) -> RetryBudget:
        settings = self.settings
        return RetryBudget(
            share=settings.redrive_share,
            burst=settings.redrive_burst,
            refill_s=settings.redrive_s,
        )

    def arm(self, after_s: float, due: Due, target: Any) -> Timer:
        """Set a timer, in seconds from now."""
        return self.timers.at(self.now_s + after_s, due, target)

    def note(
        self,
        request: OpenRequest,
        kind: Kind,
        *,
        stage: str = "",
        state: str = "",
        cause: str = "",
        seconds: float = 0.0,
    ) -> None:
        """Write down what happened to a request."""
        request.history.add(
            Entry(
                at_s=self.now_s, kind=kind, stage=stage, state=state, cause=cause, seconds=seconds
            )
        )

    def note_attempt(
        self, attempt: Attempt, kind: Kind, *, cause: str = "", seconds: float = 0.0
    ) -> None:
        """Write down what happened to an attempt that was submitted."""
        group, replica = attempt.group, attempt.replica
        group.request.history.add(
            Entry(
                at_s=self.now_s,
                kind=kind,
                stage=group.stage.name,
                role=attempt.role.role,
                attempt=attempt.number,
                replica_id=replica.replica_id,
                incarnation=replica.incarnation,
                state=attempt.state.name,
                cause=cause,
                seconds=seconds,
                timings=attempt.timings,
            )
        )

    def touch(self, request: OpenRequest) -> None:
        """Look at a request again before the step is over."""
        self.touched[request] = None

    def pool_of(self, group: Group) -> ReplicaPool:
        """Give the pool that a group runs in."""
        return self.pools[group.stage.pool]

    def ticket_queues(self) -> list[TicketQueue]:
        """Give every queue for engine slots."""
        pools = self.pools.values()
        return [*(p.tickets for p in pools), *(r.tickets for r in self.replicas.values())]

    def bury(self, request: OpenRequest, *, aborted: bool) -> None:
        """Leave a tombstone."""
        self.tombstones.put(
            request.request_id,
            epoch=request.epoch,
            aborted=aborted,
            now_s=self.now_s,
            work_epoch=request.work_epoch,
        )
        self._sweep_at(self.now_s + self.settings.tombstone_s)

    def refuse(self, request_id: str, tenant: str) -> None:
        """Refuse a request that nobody knows, if it comes within a while and is that tenant's."""
        key = _refusal_key(request_id, tenant)
        self.refusals.put(key, epoch=0, aborted=True, now_s=self.now_s)
        self._sweep_at(self.now_s + self.settings.tombstone_s)

    def refuses(self, request_id: str, tenant: str) -> bool:
        """Whether a request was aborted before it came."""
        keys = (_refusal_key(request_id, tenant), _refusal_key(request_id, ""))
        return any(self.refusals.find(key, self.now_s) is not None for key in keys)

    def sweep(self) -> None:
        """Drop the tombstones and refusals whose time is over."""
        self.tombstones_timer = None
        for stones in (self.tombstones, self.refusals):
            next_s = stones.sweep(self.now_s)
            if next_s is not None:
                self._sweep_at(next_s)

    def _sweep_at(self, when_s: float) -> None:
        timer = self.tombstones_timer
        if timer is not None and timer.when_s <= when_s:
            return
        self.timers.cancel(timer)
        self.tombstones_timer = self.timers.at(when_s, Due.TOMBSTONES, self.tombstones)

    def remember(self, view: RequestView) -> None:
        """Keep the last view of a request, in place of the oldest one kept."""
        self.recent.pop(view.request_id, None)
        self.recent[view.request_id] = view
        if len(self.recent) > self.settings.recent_max:
            self.recent.popitem(last=False)

    def models(self) -> tuple[PublishedModel, ...]:
        """Say of each model name whether every pool that it cannot do without can be used."""
        return tuple(
            PublishedModel(
                model=model,
                revision=pipeline.revision,
                ready=all(
                    self.pools[stage.pool].ready for stage in pipeline.stages if stage.when is None
                ),
            )
            for pipeline in self.mesh.pipelines.values()
            for model in pipeline.model_names
        )

    def publish(self) -> None:
        """Tell everybody which models can be served, if that has changed."""
        models = self.models()
        if models != self.published:
            self.published = models
            self.orders.publish(PublishModels(models=models))


def _refusal_key(request_id: str, tenant: str) -> str:
    return f"{tenant}/{request_id}"
