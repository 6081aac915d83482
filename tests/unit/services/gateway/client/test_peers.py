"""One linked orchestrator, and what comes from it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from services.gateway.client import Exchange, State
from services.gateway.client.peers import FENCED_MAX, Peer
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import Grant, Row
from stagemesh.link.pump import Link, Received
from stagemesh.media import Body, Modality, Request, lane_of
from stagemesh.outcome import COMPLETED
from stagemesh.wire import terminal_to_proto

TEXT = lane_of(0, 0, Modality.TEXT)


class Wire:
    """A link that writes down what is sent."""

    def __init__(self, *models: str, state: int = link_pb2.PROCESS_STATE_READY) -> None:
        self.peer = link_pb2.Hello(
            id="o", state=cast("Any", state), pipelines=[_pipeline(model) for model in models]
        )
        self.frames: list[link_pb2.Frame] = []
        self.grants: list[Grant] = []
        self.closed = ""

    def send_frame(self, frame: link_pb2.Frame) -> None:
        """See `Link`."""
        self.frames.append(frame)

    def send_grants(self, grants: tuple[Grant, ...]) -> None:
        """See `Link`."""
        self.grants += grants

    def close(self, reason: str) -> None:
        """See `Link`."""
        self.closed = reason


def _pipeline(model: str, modality: int = 1) -> link_pb2.PublishedPipeline:
    return link_pb2.PublishedPipeline(
        model=model, revision="r", output_modalities=[cast("Any", modality)]
    )


def _ignore(exchange: Exchange) -> None:
    """Take no notice of a release."""


def _peer(
    wire: Wire, on_release: Callable[[Exchange], None] = _ignore, wait_s: float = 60.0
) -> Peer:
    return Peer(cast("Link", wire), abort_wait_s=wait_s, on_release=on_release)


def _exchange(peer: Peer) -> Exchange:
    async def fetch(body: Body) -> Body:
        return body

    slot = peer.slots.next()
    exchange = Exchange(
        Request(model="m", messages=(), modalities=(Modality.TEXT,)),
        request_id="r",
        slot=slot,
        window=(4, 100),
        owner=peer,
        fetch=fetch,
        on_drop=lambda: None,
    )
    peer.exchanges[slot] = exchange
    return exchange


def _frames(*frames: link_pb2.Frame) -> Received:
    return Received([], list(frames), [])


async def test_rows_go_to_their_request_and_its_end_closes_it() -> None:
    released: list[Exchange] = []
    peer = _peer(Wire("m"), released.append)
    exchange = _exchange(peer)
    end = link_pb2.Frame(terminal=terminal_to_proto(exchange.slot, COMPLETED))
    peer.received(Received([Row(exchange.slot, TEXT, 0, 1, "a")], [end], []))
    taken = await exchange.take()
    assert ([row.text for row in taken.rows], taken.terminal) == (["a"], COMPLETED)
    assert (peer.open_requests, released) == (0, [exchange])


def test_a_row_of_an_unknown_slot_is_fenced_once_and_the_memory_of_it_is_bounded() -> None:
    wire = Wire()
    peer = _peer(wire)
    for _ in range(2):
        peer.received(Received([Row(9, TEXT, 0, 1), Row(9, TEXT, 1, 1)], [], []))
    assert [frame.fence.slot for frame in wire.frames] == [9]
    peer.received(Received([Row(slot, TEXT, 0, 1) for slot in range(10, 10 + FENCED_MAX)], [], []))
    wire.frames.clear()
    peer.received(Received([Row(9, TEXT, 2, 1)], [], []))
    assert [frame.fence.slot for frame in wire.frames] == [9]


async def test_an_abort_that_nobody_answers_is_forgotten() -> None:
    released: asyncio.Queue[Exchange] = asyncio.Queue()
    wire = Wire()
    peer = _peer(wire, released.put_nowait, wait_s=0.0)
    exchange = _exchange(peer)
    exchange.abort("why")
    assert (exchange.state, peer.open_requests) == (State.ENDING, 1)
    async with asyncio.timeout(5):
        assert await released.get() is exchange
    assert (exchange.state, peer.open_requests) == (State.DONE, 0)
    assert wire.frames[0].abort == link_pb2.Abort(slot=exchange.slot, cause="why")


async def test_an_unknown_request_and_an_end_that_cannot_be_read_are_failures() -> None:
    peer = _peer(Wire())
    gone, odd = _exchange(peer), _exchange(peer)
    peer.received(
        _frames(
            link_pb2.Frame(unknown=link_pb2.Unknown(slot=gone.slot)),
            link_pb2.Frame(terminal=link_pb2.Terminal(slot=odd.slot)),
        )
    )
    reasons = []
    for exchange in (gone, odd):
        terminal = (await exchange.take()).terminal
        assert terminal is not None
        assert terminal.error is not None
        reasons.append(terminal.error.reason)
    assert reasons == ["link_lost", "protocol_error"]


def test_ends_of_unknown_slots_mean_nothing() -> None:
    peer = _peer(Wire())
    peer.received(
        _frames(
            link_pb2.Frame(terminal=terminal_to_proto(5, COMPLETED)),
            link_pb2.Frame(unknown=link_pb2.Unknown(slot=5)),
        )
    )
    assert peer.open_requests == 0


def test_news_change_what_is_known_and_only_that() -> None:
    peer = _peer(Wire("a"))
    assert (peer.takes_work, peer.has_model("a")) == (True, True)
    draining = link_pb2.Ping(state=link_pb2.PROCESS_STATE_DRAINING)
    peer.received(_frames(link_pb2.Frame(ping=draining)))
    assert (peer.takes_work, peer.has_model("a")) == (False, True)
    back = link_pb2.Ping(
        state=link_pb2.PROCESS_STATE_READY, pipelines=[_pipeline("b")], has_pipelines=True
    )
    peer.received(_frames(link_pb2.Frame(ping=back)))
    assert (peer.takes_work, peer.has_model("a"), peer.has_model("b")) == (True, False, True)
    peer.received(_frames(link_pb2.Frame(go_away=link_pb2.GoAway())))
    assert not peer.takes_work


def test_an_orchestrator_that_discovery_no_longer_names_takes_nothing_new() -> None:
    peer = _peer(Wire())
    peer.listed = False
    assert not peer.takes_work


def test_news_that_cannot_be_read_end_the_link_and_a_hello_like_that_never_begins_it() -> None:
    wire = Wire()
    news = link_pb2.Ping(pipelines=[_pipeline("a", modality=14)], has_pipelines=True)
    _peer(wire).received(_frames(link_pb2.Frame(ping=news)))
    assert "cannot be read" in wire.closed
    wire.peer.pipelines.append(_pipeline("a", modality=14))
    with pytest.raises(MeshError):
        _peer(wire)


async def test_a_lost_link_ends_all_that_was_on_it() -> None:
    peer = _peer(Wire())
    exchanges = [_exchange(peer) for _ in range(3)]
    peer.lost("broken")
    assert [exchange.state for exchange in exchanges] == [State.DONE] * 3
    assert (peer.open_requests, peer.takes_work) == (0, False)
