"""All orchestrators that this gateway is linked with, and the requests that they have from it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from services.gateway.client.exchange import Exchange
from services.gateway.client.inputs import ExchangeInput
from services.gateway.client.lines import Line
from services.gateway.client.media import Media
from services.gateway.client.parties import Owner
from services.gateway.client.peers import Peer
from services.gateway.client.redrives import Redrives
from services.gateway.core.choice import choose, named
from services.gateway.core.detached import LanePosition, OwnerName
from services.gateway.core.inputs import InputLog
from services.gateway.core.journal import RequestJournal
from services.gateway.core.redrive import Loss, LossKind, Redrive, RedrivePolicy
from services.gateway.translate import SelfPortrait
from stagemesh.discovery import Endpoint, Source
from stagemesh.errors import MeshError
from stagemesh.link.pump import LinkPolicy
from stagemesh.media import Request
from stagemesh.outcome import ErrorInfo, Outcome, error_for
from stagemesh.rpc import Tls
from stagemesh.wire import PublishedModelValue

__all__ = ["ClientPolicy", "Orchestrators"]

_GROUP: Final = "orchestrators"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """The timers and bounds of requests."""

    deadline_max_s: float = 3600.0
    """No request lives longer, whatever its pipeline says."""
    deadline_slack_s: float = 1.0
    """How long after its deadline a request is ended here, where the orchestrator did not."""
    abort_wait_s: float = 5.0
    """How long an abort may stay unanswered before its request is forgotten."""
    redrive: RedrivePolicy = field(default_factory=RedrivePolicy)
    """What becomes of requests whose orchestrator is lost."""
    journal_bytes_max: int = 4 * 1024 * 1024
    """Of what one request has produced; above it, it cannot be given to another orchestrator."""
    input_log_bytes_max: int = 16 * 1024 * 1024
    """Of what the client of one request gave piece by piece; above it, alike."""
    open_bytes_max: int = 3 * 1024 * 1024
    """Of one request on the link; large media does not count."""
    ended_keep_s: float = 86_400.0
    """How long it is known of a request that may outlive a gateway what became of it."""


class Orchestrators:
    """Gives each request to the least loaded orchestrator that can take it."""

    def __init__(
        self,
        source: Source,
        *,
        portrait: SelfPortrait,
        media: Media,
        policy: ClientPolicy,
        link_policy: LinkPolicy,
        tls: Tls | None,
        insecure: bool,
        on_drop: Callable[[], None],
        on_loss: Callable[[LossKind], None],
    ) -> None:
        self._source = source
        self.portrait = portrait
        self._media = media
        self.policy = policy
        self._link_policy = link_policy
        self._tls = tls
        self._insecure = insecure
        self._on_drop = on_drop
        self._on_loss = on_loss
        self._exchanges: dict[str, Exchange] = {}
        self._redrives = Redrives(self._peers, open_bytes_max=policy.open_bytes_max)
        self._lines: dict[Endpoint, Line] = {}
        self._draining = False

    @property
    def ready(self) -> bool:
        """Whether a request could be given to somebody, for at least one model that is ready."""
        return not self._draining and any(peer.ready for peer in self._peers())

    @property
    def links(self) -> int:
        """How many orchestrators are linked now."""
        return sum(1 for _ in self._peers())

    @property
    def open_requests(self) -> int:
        """How many requests are open, with or without an owner."""
        return len(self._exchanges)

    @property
    def models(self) -> dict[str, PublishedModelValue]:
        """What the orchestrators publish, by name; ready if it is ready anywhere."""
        models: dict[str, PublishedModelValue] = {}
        for peer in self._peers():
            for name, model in peer.models.items():
                if name not in models or (model.ready and not models[name].ready):
                    models[name] = model
        return dict(sorted(models.items()))

    async def open(
        self,
        request: Request,
        *,
        request_id: str,
        deadline_s: float = 0.0,
        streamed: bool = False,
    ) -> Exchange:
        """Give a request to an orchestrator; without a deadline it has its pipeline's.

        The input of a `streamed` request is given to its exchange piece by piece.

        Raises:
            MeshError: If none can take it, or it is too large.
        """
        self.peer_for(request.model)  # Before anything is stored.
        sent = await self.put(request, request_id)
        try:
            peer = self.peer_for(request.model)
            deadline_s = self.deadline_of(peer, request.model, deadline_s)
            exchange = self.exchange(sent, request_id, streamed=streamed)
            self.start(exchange, peer, deadline_s)
        except BaseException:
            self.forget(request_id)
            raise
        return exchange

    async def put(self, request: Request, request_id: str) -> Request:
        """Put a request's large media where workers fetch it, until its exchange is over.

        Raises:
            MeshError: If there is no room.
        """
        return await self._media.put(request, request_id)

    def forget(self, request_id: str) -> None:
        """Drop the media of a request that came to no exchange."""
        self._media.release(request_id)

    def peer_for(self, model: str, owner: OwnerName | None = None, revision: str = "") -> Peer:
        """Choose who gets a request: who had it, if that one is linked, whatever else is there.

        Of the others, where a revision is named, only those whose pipeline has it.

        Raises:
            MeshError: If none can take it, or this gateway is being stopped.
        """
        if self._draining:
            raise MeshError(error_for("draining", retry_after_s=1.0))
        had = None if owner is None else named(self._peers(), owner)
        fitting = (peer for peer in self._peers() if revision in {"", peer.revision_of(model)})
        return had or choose(fitting, model)

    def deadline_of(self, peer: Peer, model: str, deadline_s: float) -> float:
        """Give the time that a request has: its client's, else its pipeline's; 0 for neither."""
        return deadline_s or min(peer.models[model].deadline_s, self.policy.deadline_max_s)

    def exchange(
        self,
        request: Request,
        request_id: str,
        *,
        begun: Iterable[LanePosition] | None = None,
        revision: str = "",
        streamed: bool = False,
    ) -> Exchange:
        """Make the exchange of a request; if another gateway has begun it, from where it stands."""
        policy = self.policy
        journal = RequestJournal(
            request.choices,
            request.modalities,
            bytes_max=policy.journal_bytes_max,
            begun=begun,
            revision=revision,
        )
        return Exchange(
            request,
            request_id=request_id,
            window=(self.portrait.window_units, self.portrait.window_bytes),
            keeper=self,
            journal=journal,
            redrive=Redrive(policy.redrive),
            deadline_at_s=0.0,
            fetch=self._media.fetch,
            on_drop=self._on_drop,
            input=ExchangeInput(InputLog(policy.input_log_bytes_max)) if streamed else None,
        )

    def start(self, exchange: Exchange, peer: Peer, deadline_s: float) -> None:
        """Give an exchange its first owner here; one that is gone by now is lost like any other.

        Without a deadline, no owner is told of one.

        Raises:
            MeshError: If the request is too large.
        """
        policy = self.policy
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        # Told to each owner, so that the second does not begin the pipeline's time anew.
        exchange.deadline_at_s = now_s + deadline_s if deadline_s else 0.0
        if not peer.gone:
            peer.give(exchange, now_s, open_bytes_max=policy.open_bytes_max)
        exchange.deadline = loop.call_later(
            (deadline_s or policy.deadline_max_s) + policy.deadline_slack_s,
            exchange.fail,
            error_for("deadline_exceeded"),
            Outcome.DEADLINE_EXCEEDED,
        )
        self._exchanges[exchange.request_id] = exchange
        if peer.gone:
            exchange.lose(Loss(kind=LossKind.LINK, info=error_for("link_lost")))

    def lost(self, exchange: Exchange, loss: Loss, owner: Owner | None) -> None:
        """See `Keeper`."""
        self._on_loss(loss.kind)
        self._redrives.lost(exchange, loss, owner)

    def release(self, exchange: Exchange) -> None:
        """See `Keeper`."""
        if self._exchanges.get(exchange.request_id) is exchange:
            del self._exchanges[exchange.request_id]
            self._redrives.forget(exchange)
        self._media.release(exchange.request_id)

    def drain(self) -> None:
        """Take nothing new, and say so."""
        self._draining = True
        for peer in self._peers():
            peer.link.ping_now()

    def end_all(self, info: ErrorInfo) -> None:
        """End every request that is still open here; what may outlive this gateway goes on."""
        for exchange in list(self._exchanges.values()):
            if exchange.claims is None:
                exchange.fail(info)
            else:
                exchange.claims.leave(info)

    async def close(self) -> None:
        """End all links in good order."""
        await asyncio.gather(*(line.close() for line in self._lines.values()))

    async def run(self) -> None:
        """Follow discovery and keep the links, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            async for endpoints in self._source.watch(_GROUP):
                self._follow(endpoints, tasks)

    def _follow(self, endpoints: Iterable[Endpoint], tasks: asyncio.TaskGroup) -> None:
        named = set(endpoints)
        for endpoint in named - self._lines.keys():
            line = Line(
                endpoint,
                portrait=self.portrait,
                draining=lambda: self._draining,
                policy=self._link_policy,
                tls=self._tls,
                insecure=self._insecure,
                abort_wait_s=self.policy.abort_wait_s,
                on_news=self._redrives.news,
            )
            self._lines[endpoint] = line
            line.start(tasks, self._ended)
        for endpoint, line in list(self._lines.items()):
            line.list(endpoint in named)

    def _ended(self, line: Line) -> None:
        self._lines.pop(line.endpoint, None)

    def _peers(self) -> Iterator[Peer]:
        return (line.peer for line in self._lines.values() if line.peer is not None)
