"""One linked orchestrator, and what comes from it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from services.gateway.client import Exchange, State
from services.gateway.client.inputs import ExchangeInput
from services.gateway.client.parties import Owner
from services.gateway.client.peers import FENCED_MAX, Peer
from services.gateway.core.detached import OwnerName
from services.gateway.core.inputs import InputLog
from services.gateway.core.journal import RequestJournal
from services.gateway.core.redrive import Loss, LossKind, Redrive, RedrivePolicy
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import REQUEST_SOURCE, Grant, Row
from stagemesh.link.pump import Link, Received
from stagemesh.media import Body, Modality, Request, lane_of
from stagemesh.outcome import COMPLETED, error_for
from stagemesh.wire import terminal_to_proto

TEXT = lane_of(0, 0, Modality.TEXT)


class Wire:
    """A link that writes down what is sent."""

    def __init__(self, *models: str, state: int = link_pb2.PROCESS_STATE_READY) -> None:
        self.peer = link_pb2.Hello(
            id="o",
            state=cast("Any", state),
            pipelines=[_pipeline(model) for model in models],
            limits=link_pb2.LinkLimits(window_units=2, window_bytes=1_000),
        )
        self.frames: list[link_pb2.Frame] = []
        self.grants: list[Grant] = []
        self.rows: list[Row] = []
        self.closed = ""
        self.waiting_bytes = 0

    def send_frame(self, frame: link_pb2.Frame) -> None:
        """See `Link`."""
        self.frames.append(frame)

    def send_grants(self, grants: tuple[Grant, ...]) -> None:
        """See `Link`."""
        self.grants += grants

    def send_rows(self, rows: Sequence[Row]) -> None:
        """See `Link`."""
        self.rows += rows
        self.frames += [link_pb2.Frame(input=link_pb2.Input(pos=row.pos)) for row in rows]

    def close(self, reason: str) -> None:
        """See `Link`."""
        self.closed = reason


def _pipeline(model: str, modality: int = 1) -> link_pb2.PublishedPipeline:
    return link_pb2.PublishedPipeline(
        model=model, revision="r", output_modalities=[cast("Any", modality)]
    )


class Keeping:
    """A keeper that writes down what it is told."""

    def __init__(self) -> None:
        self.losses: list[tuple[LossKind, Owner | None]] = []
        self.released: asyncio.Queue[Exchange] = asyncio.Queue()

    def lost(self, exchange: Exchange, loss: Loss, owner: Owner | None) -> None:
        """See `Keeper`."""
        self.losses.append((loss.kind, owner))

    def release(self, exchange: Exchange) -> None:
        """See `Keeper`."""
        self.released.put_nowait(exchange)


def _peer(wire: Wire, wait_s: float = 60.0, on_news: Callable[[], None] = lambda: None) -> Peer:
    return Peer(
        cast("Link", wire),
        abort_wait_s=wait_s,
        outbox_bytes_max=1_000,
        on_news=on_news,
        on_leave=lambda: None,
    )


def _exchange(
    peer: Peer, keeper: Keeping | None = None, given: ExchangeInput | None = None
) -> Exchange:
    async def fetch(body: Body) -> Body:
        return body

    exchange = Exchange(
        Request(model="m", messages=(), modalities=(Modality.TEXT,)),
        request_id="r",
        window=(4, 100),
        keeper=keeper or Keeping(),
        journal=RequestJournal(1, (Modality.TEXT,), bytes_max=1_000),
        redrive=Redrive(RedrivePolicy()),
        deadline_at_s=0.0,
        fetch=fetch,
        on_drop=lambda: None,
        input=given,
    )
    peer.give(exchange, 0.0, open_bytes_max=10_000)
    return exchange


def _frames(*frames: link_pb2.Frame) -> Received:
    return Received([], list(frames), [])


async def test_rows_go_to_their_request_and_its_end_closes_it() -> None:
    keeper = Keeping()
    peer = _peer(Wire("m"))
    exchange = _exchange(peer, keeper)
    end = link_pb2.Frame(terminal=terminal_to_proto(exchange.slot, COMPLETED))
    peer.received(Received([Row(exchange.slot, TEXT, 0, 1, "a")], [end], []))
    taken = await exchange.take()
    assert ([row.text for row in taken.rows], taken.terminal) == (["a"], COMPLETED)
    assert (peer.open_requests, keeper.released.get_nowait()) == (0, exchange)


@pytest.mark.invariant("ENTRY-INV-200")
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
    keeper = Keeping()
    wire = Wire()
    peer = _peer(wire, wait_s=0.0)
    exchange = _exchange(peer, keeper)
    exchange.abort("why")
    assert (exchange.state, peer.open_requests) == (State.ENDING, 1)
    async with asyncio.timeout(5):
        assert await keeper.released.get() is exchange
    assert (exchange.state, peer.open_requests) == (State.DONE, 0)
    assert wire.frames[1].abort == link_pb2.Abort(slot=exchange.slot, cause="why")


async def test_an_end_that_cannot_be_read_is_a_failure() -> None:
    peer = _peer(Wire())
    odd = _exchange(peer)
    peer.received(_frames(link_pb2.Frame(terminal=link_pb2.Terminal(slot=odd.slot))))
    terminal = (await odd.take()).terminal
    assert terminal is not None
    assert terminal.error is not None
    assert terminal.error.reason == "protocol_error"


def test_a_request_that_is_unknown_or_handed_back_needs_another_owner() -> None:
    keeper = Keeping()
    peer = _peer(Wire())
    unknown, back = _exchange(peer, keeper), _exchange(peer, keeper)
    peer.received(
        _frames(
            link_pb2.Frame(unknown=link_pb2.Unknown(slot=unknown.slot)),
            link_pb2.Frame(hand_back=link_pb2.HandBack(slot=back.slot)),
        )
    )
    assert keeper.losses == [(LossKind.UNKNOWN, peer), (LossKind.HANDED_BACK, peer)]
    assert peer.open_requests == 0


def test_what_comes_of_a_request_that_was_handed_back_is_fenced() -> None:
    wire = Wire()
    peer = _peer(wire)
    slot = _exchange(peer).slot
    peer.received(_frames(link_pb2.Frame(hand_back=link_pb2.HandBack(slot=slot))))
    peer.received(Received([Row(slot, TEXT, 0, 1)], [], []))
    peer.received(_frames(link_pb2.Frame(placed=link_pb2.Placed(slot=slot))))
    peer.received(_frames(link_pb2.Frame(reset=link_pb2.Reset(slot=slot))))
    fences = [frame.fence for frame in wire.frames if frame.HasField("fence")]
    assert fences == [link_pb2.Fence(slot=slot, epoch=2**32 - 1)]


def test_a_request_is_opened_with_its_epoch_and_its_journal() -> None:
    wire = Wire()
    peer = _peer(wire)
    exchange = _exchange(peer)
    placed = link_pb2.Placed(slot=exchange.slot, stage=3, role=1, attempt=2, replica_id="w")
    peer.received(Received([Row(exchange.slot, TEXT, 0, 1, "a", [5])], [], []))
    peer.received(_frames(link_pb2.Frame(placed=placed)))
    peer.received(_frames(link_pb2.Frame(unknown=link_pb2.Unknown(slot=exchange.slot))))
    peer.give(exchange, 1.0, open_bytes_max=1)  # A bound of requests, not of journals.
    first, second = (frame.open for frame in wire.frames)
    assert (first.epoch, first.request_id, first.HasField("journal")) == (1, "r", False)
    assert (second.epoch, second.request_id, second.slot) == (2, "r", exchange.slot)
    assert list(second.journal.lanes[0].token_ids) == [5]
    assert [one.replica_id for one in second.journal.placed] == ["w"]


def test_a_request_that_is_too_large_is_not_given() -> None:
    wire = Wire()
    peer = _peer(wire)
    exchange = _exchange(_peer(Wire()))
    exchange.redrive.epoch = 0
    with pytest.raises(MeshError, match="larger than 1 bytes"):
        peer.give(exchange, 0.0, open_bytes_max=1)
    assert (wire.frames, peer.open_requests) == ([], 0)


def test_half_of_the_outbox_is_kept_for_others() -> None:
    wire = Wire()
    peer = _peer(wire)
    assert peer.has_room(500)
    assert not peer.has_room(501)
    wire.waiting_bytes = 499
    assert peer.has_room(1)
    assert not peer.has_room(2)


def test_news_are_told_on() -> None:
    told: list[bool] = []
    peer = _peer(Wire(), on_news=lambda: told.append(peer.takes_work))
    peer.received(_frames(link_pb2.Frame(ping=link_pb2.Ping(state=link_pb2.PROCESS_STATE_READY))))
    assert told == [True]


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


def test_a_lost_link_takes_all_that_was_on_it() -> None:
    keeper = Keeping()
    peer = _peer(Wire())
    exchanges = [_exchange(peer, keeper) for _ in range(3)]
    peer.lost("broken")
    assert keeper.losses == [(LossKind.LINK, peer)] * 3
    assert [exchange.state for exchange in exchanges] == [State.OPEN] * 3
    assert (peer.open_requests, peer.takes_work) == (0, False)


async def test_streamed_input_goes_to_the_owner_and_waits_for_its_credit() -> None:
    wire = Wire()
    peer = _peer(wire)
    given = ExchangeInput(InputLog(10_000))
    exchange = _exchange(peer, given=given)
    assert wire.frames[0].open.streamed
    assert not wire.frames[0].open.more
    given.append("a")
    given.append("b")
    waiting = asyncio.create_task(given.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    peer.received(Received([], [], [Grant(exchange.slot, REQUEST_SOURCE, 3, 1_000)]))
    peer.received(Received([], [], [Grant(99, REQUEST_SOURCE, 3, 1_000)]))
    async with asyncio.timeout(5):
        await waiting
    assert [(row.slot, row.text) for row in wire.rows] == [
        (exchange.slot, "a"),
        (exchange.slot, "b"),
    ]


async def test_the_next_owner_is_given_the_input_so_far_between_open_and_go() -> None:
    keeper = Keeping()
    first, second = Wire(), Wire()
    given = ExchangeInput(InputLog(10_000))
    exchange = _exchange(_peer(first), keeper, given)
    given.append("a")
    exchange.lose(Loss(kind=LossKind.LINK, info=error_for("link_lost")))
    _peer(second).give(exchange, 0.0, open_bytes_max=10_000)
    kinds = [frame.WhichOneof("kind") for frame in second.frames]
    assert kinds == ["open", "input", "go"]
    assert (second.frames[0].open.streamed, second.frames[0].open.more) == (True, True)
    assert (second.frames[0].open.epoch, second.rows[0].slot) == (2, exchange.slot)
    assert exchange.recoverable
    assert exchange.kept_bytes > 0
    given.append("x" * 10_000)
    assert not exchange.recoverable


@pytest.mark.parametrize("here", [True, False])
def test_what_is_left_to_another_gateway_of_this_very_owner_is_detached_once_and_not_ended(
    here: bool,
) -> None:
    wire = Wire()
    peer = _peer(wire)
    exchange = _exchange(peer)
    exchange.cede(here=here)
    late = link_pb2.Frame(placed=link_pb2.Placed(slot=exchange.slot))
    peer.received(Received([Row(exchange.slot, TEXT, 0, 1)], [late], []))
    fences = [frame.fence for frame in wire.frames if frame.HasField("fence")]
    assert fences == [link_pb2.Fence(slot=exchange.slot, epoch=2**32 - 1, detach=here)]
    assert (exchange.state, peer.open_requests) == (State.DONE, 0)
    assert not any(frame.HasField("abort") for frame in wire.frames)


def test_an_owner_is_known_by_its_id_and_its_life() -> None:
    wire = Wire()
    wire.peer.incarnation = 2**64 - 1
    assert _peer(wire).name == OwnerName("o", 2**64 - 1)
