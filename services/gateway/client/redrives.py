"""Requests whose orchestrator is lost: each is given to another, or ended when there is none."""

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial

from services.gateway.client.exchange import Exchange
from services.gateway.client.parties import Owner, State
from services.gateway.client.peers import Peer
from services.gateway.core.choice import choose, named
from services.gateway.core.redrive import Loss, LossKind
from stagemesh.errors import MeshError
from stagemesh.outcome import Outcome, error_for

__all__ = ["Redrives"]


class Redrives:
    """Finds owners. Where there is none now, the request is parked until there is news."""

    def __init__(self, peers: Callable[[], Iterable[Peer]], *, open_bytes_max: int) -> None:
        self._peers = peers
        self._open_bytes_max = open_bytes_max
        self._parked: dict[str, Exchange] = {}
        # Who gave a request back, or would not have it: others are asked first.
        self._avoided: dict[str, Owner] = {}

    def lost(self, exchange: Exchange, loss: Loss, owner: Owner | None) -> None:
        """Find another owner for an open exchange, after a short wait at random."""
        verdict = exchange.redrive.lost(loss, asyncio.get_running_loop().time())
        if not exchange.recoverable:
            what = "input" if exchange.journal.recoverable else "answer"
            verdict = error_for(
                "link_lost", f"{loss.info.message} The {what} is too long to go on."
            )
        if verdict is not None:
            exchange.fail(verdict)
            return
        if owner is not None:
            self._avoided[exchange.request_id] = owner
        if loss.kind is LossKind.REFUSED and exchange.epoch == 1 and not self._able(exchange):
            exchange.fail(loss.info, Outcome.REJECTED)
            return
        self._wait(exchange)

    def news(self) -> None:
        """Try again what is parked: an orchestrator came, or said something of itself."""
        parked, self._parked = self._parked, {}
        for exchange in parked.values():
            self._wait(exchange)

    def forget(self, exchange: Exchange) -> None:
        """Forget an exchange that is done."""
        self._parked.pop(exchange.request_id, None)
        self._avoided.pop(exchange.request_id, None)

    def _wait(self, exchange: Exchange) -> None:
        loop = asyncio.get_running_loop()
        at_s = loop.time() + exchange.redrive.delay_s(random.random())
        self._call_at(min(at_s, exchange.redrive.ends_s), exchange)

    def _call_at(self, at_s: float, exchange: Exchange) -> None:
        if exchange.retry is not None:
            exchange.retry.cancel()
        exchange.retry = asyncio.get_running_loop().call_at(at_s, self._try, exchange)

    def _try(self, exchange: Exchange) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= exchange.redrive.ends_s:
            exchange.fail(exchange.redrive.verdict())
            return
        try:
            peer = self._choose(exchange)
        except MeshError as error:
            exchange.redrive.none_found(error.info)
            self._parked[exchange.request_id] = exchange
            self._call_at(exchange.redrive.ends_s, exchange)
            return
        if not peer.has_room(exchange.kept_bytes):
            # Many large journals at once: more would only end the link that is to take them.
            self._wait(exchange)
            return
        self._avoided.pop(exchange.request_id, None)
        self._parked.pop(exchange.request_id, None)
        exchange.retry = None
        if exchange.claims is None:
            self._give(exchange, peer)
            return
        revision = exchange.journal.revision_at(peer.revision_of(exchange.request.model))
        exchange.claims.claim(peer.name, revision, partial(self._give, exchange, peer))

    def _give(self, exchange: Exchange, peer: Peer) -> None:
        """Give an exchange to its next owner, unless either is over by now."""
        if exchange.state is not State.OPEN:
            return
        if peer.gone:
            self._wait(exchange)
            return
        now_s = asyncio.get_running_loop().time()
        try:
            peer.give(exchange, now_s, open_bytes_max=self._open_bytes_max)
        except MeshError as error:
            exchange.fail(error.info)

    def _choose(self, exchange: Exchange) -> Peer:
        """Choose an owner, of those that did not just give the request back if possible.

        What was made by one revision of a pipeline means nothing to another. Where one alone knows
        what was made, it is the one, if it is linked.
        """
        model = exchange.request.model
        if exchange.claims is not None and exchange.claims.sole_owner is not None:
            sole = named(self._peers(), exchange.claims.sole_owner)
            if sole is not None and sole is not self._avoided.get(exchange.request_id):
                return sole
        try:
            return choose(self._able(exchange), model)
        except MeshError:
            return choose(self._continuing(exchange), model)

    def _able(self, exchange: Exchange) -> list[Peer]:
        avoided = self._avoided.get(exchange.request_id)
        return [
            peer
            for peer in self._continuing(exchange)
            if peer is not avoided and peer.takes_work and peer.has_model(exchange.request.model)
        ]

    def _continuing(self, exchange: Exchange) -> list[Peer]:
        model, journal = exchange.request.model, exchange.journal
        return [
            peer
            for peer in self._peers()
            if not peer.has_model(model) or journal.goes_on_at(peer.revision_of(model))
        ]
