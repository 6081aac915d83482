"""Both ends of a link on a real gRPC stream, for each of the two services that serve links."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc import aio

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import Grant, Meter, Row, Sender, row_cost
from stagemesh.link.pump import Link, LinkPolicy, Received
from stagemesh.link.pump.greeting import greet
from stagemesh.media import Body, Modality, lane_of
from stagemesh.outcome import End, FinishReason
from stagemesh.rpc import RunningServer, open_channel
from tests.helpers.link_ends import WAIT_S, Recorder, hello, ping
from tests.helpers.link_services import Context, Kind, dialling, raw_call, serving

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)
STOP = End(finish_reason=FinishReason.STOP)
QUICK = LinkPolicy(heartbeat_s=0.1, peer_lost_s=0.4)


@pytest.fixture(params=["stage", "gateway"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """Read a raw call to its end, and tell why it ended."""
    with pytest.raises(aio.AioRpcError) as caught:
        while await call.read() is not aio.EOF:
            pass
    return caught.value.code(), caught.value.details() or ""


class Pair:
    """The two ends of one link."""

    def __init__(self, served: Recorder, called: Recorder, server: RunningServer) -> None:
        self.served = served
        self.called = called
        self.server = server

    @property
    def up(self) -> Link:
        """The server's end."""
        return self.served.links[-1]

    @property
    def down(self) -> Link:
        """The client's end."""
        return self.called.links[-1]


@pytest.fixture
async def pair(kind: Kind) -> AsyncIterator[Pair]:
    served, called = Recorder(), Recorder()
    async with kind.running(serving(served)) as server, dialling(kind, server.address, called):
        await served.until(lambda: served.links)
        await called.until(lambda: called.links)
        yield Pair(served, called, server)


class Producer:
    """Sends ` w0 w1 …` on a slot as fast as credit allows, some tokens a step."""

    def __init__(self, slot: int, tokens: int, each: int) -> None:
        self.sender = Sender(64, 1 << 20)
        self._slot, self._tokens, self._each, self._made = slot, tokens, each, 0

    def step(self, link: Link) -> bool:
        """Make the next output; return whether there was one."""
        if self._made == self._tokens:
            return False
        first, self._made = self._made, min(self._tokens, self._made + self._each)
        ids = list(range(first, self._made))
        text = "".join(f" w{one}" for one in ids)
        end = STOP if self._made == self._tokens else None
        row = Row(self._slot, TEXT, first, len(ids), text, ids, end=end)
        if ready := self.sender.offer(row):
            link.send_rows(ready)
        return True


class Consumer:
    """Takes what comes of every slot, and grants at once, except to the slots that it stalls."""

    def __init__(self, stalled: set[int]) -> None:
        self.texts: dict[int, str] = {}
        self.ids: dict[int, list[int]] = {}
        self.ended: set[int] = set()
        self.stalled = stalled
        self._meters: dict[int, Meter] = {}
        self._waiting: list[Row] = []

    def take(self, link: Link, received: Received) -> None:
        """Take a message."""
        grants = []
        for row in received.rows:
            assert row.slot not in self.ended
            self.texts[row.slot] = self.texts.get(row.slot, "") + row.text
            self.ids.setdefault(row.slot, []).extend(row.ids or ())
            if row.end is not None:
                self.ended.add(row.slot)
            if row.slot in self.stalled:
                self._waiting.append(row)
            else:
                grants += self._granted(row)
        if grants:
            link.send_grants(grants)

    def resume(self, link: Link) -> None:
        """Take at last what was stalled."""
        self.stalled.clear()
        link.send_grants([grant for row in self._waiting for grant in self._granted(row)])

    def _granted(self, row: Row) -> list[Grant]:
        meter = self._meters.setdefault(row.slot, Meter(64, 1 << 20))
        totals = meter.took(*row_cost(row))
        return [Grant(row.slot, 0, *totals)] if totals else []


def words(tokens: int) -> str:
    return "".join(f" w{one}" for one in range(tokens))


async def produce(link: Link, producers: dict[int, Producer]) -> None:
    """Let all producers run freely, a step each at a time."""
    while any(  # noqa: ASYNC110 (Nothing is waited for: others get their turn.)
        [producer.step(link) for producer in producers.values()]
    ):
        await asyncio.sleep(0)


def obey_grants(producers: dict[int, Producer]) -> Callable[[Link, Received], None]:
    def obey(link: Link, received: Received) -> None:
        for grant in received.grants:
            link.send_rows(producers[grant.slot].sender.grant(grant.units, grant.bytes))

    return obey


async def test_each_end_knows_the_other(pair: Pair) -> None:
    assert pair.up.peer.id == "client"
    assert pair.down.peer.id == "server"
    assert pair.down.peer.incarnation == 7
    assert pair.down.peer.protocol == 1


async def test_64_free_running_slots_arrive_complete_and_in_order(pair: Pair) -> None:
    producers = {slot: Producer(slot, 1000, 1 + slot % 7) for slot in range(1, 65)}
    consumer = Consumer(stalled=set())
    pair.served.when_received = obey_grants(producers)
    pair.called.when_received = consumer.take
    await produce(pair.up, producers)
    await pair.called.until(lambda: len(consumer.ended) == 64)
    assert all(text == words(1000) for text in consumer.texts.values())
    assert all(ids == list(range(1000)) for ids in consumer.ids.values())
    assert len(pair.called.got) < 64 * 1000 / 8  # Batches formed.


async def test_a_stalled_reader_holds_back_only_by_credit(pair: Pair) -> None:
    producers = {slot: Producer(slot, 500, 1) for slot in range(1, 65)}
    consumer = Consumer(stalled={7, 8})
    pair.served.when_received = obey_grants(producers)
    pair.called.when_received = consumer.take
    await produce(pair.up, producers)
    await pair.called.until(lambda: len(consumer.ended) == 62)
    assert consumer.ids[7] == consumer.ids[8] == list(range(64))
    assert producers[7].sender.held_units == 500 - 64
    consumer.resume(pair.down)
    await pair.called.until(lambda: len(consumer.ended) == 64)
    assert consumer.texts[7] == consumer.texts[8] == words(500)


async def test_rows_go_down_as_well_as_up(pair: Pair) -> None:
    pair.down.send_rows([Row(3, TEXT, 0, 2, " w0 w1")])
    chunk = Row(3, AUDIO, 0, 480, body=Body(inline=bytes(960), media_type="audio/pcm"), end=STOP)
    pair.down.send_rows([chunk])
    await pair.served.until(lambda: sum(len(got.rows) for got in pair.served.got) == 2)
    assert [row for got in pair.served.got for row in got.rows] == [
        Row(3, TEXT, 0, 2, " w0 w1"),
        chunk,
    ]


async def test_big_frames_pass(pair: Pair) -> None:
    cause = "y" * (4 << 20)
    pair.down.send_frame(link_pb2.Frame(abort=link_pb2.Abort(slot=1, cause=cause)))
    for slot in range(2, 22):
        abort = link_pb2.Abort(slot=slot, cause="z" * 200_000)
        pair.down.send_frame(link_pb2.Frame(abort=abort))
    await pair.served.until(lambda: len(pair.served.kinds) == 21)
    aborts = [frame.abort for got in pair.served.got for frame in got.frames]
    assert [abort.slot for abort in aborts] == list(range(1, 22))
    assert aborts[0].cause == cause


async def test_go_away_and_news_pass_both_ways(pair: Pair) -> None:
    pair.up.send_frame(link_pb2.Frame(go_away=link_pb2.GoAway(reason="upgrade", drain_s=5.0)))
    pair.down.ping_now()
    await pair.called.until(lambda: pair.called.kinds == ["go_away"])
    await pair.served.until(lambda: pair.served.kinds == ["ping"])
    assert pair.called.got[0].frames[0].go_away.drain_s == 5.0
    assert pair.called.losses == pair.served.losses == []


async def test_a_killed_peer_is_lost_once_at_once(pair: Pair) -> None:
    await pair.server.stop(0)
    await pair.called.until(lambda: pair.called.losses)
    await pair.served.until(lambda: pair.served.losses)
    assert pair.called.reasons[0].startswith("broken: ")
    assert pair.served.reasons[0] in {"cancelled", "peer_closed"}


async def test_a_closing_server_delivers_what_it_had_and_says_why(pair: Pair) -> None:
    pair.up.send_rows([Row(slot, TEXT, 0, 1, "x") for slot in range(1, 10_001)])
    pair.up.close("shutdown")
    first = pair.down
    await pair.called.until(lambda: pair.called.losses)
    assert sum(len(got.rows) for got in pair.called.got) == 10_000
    assert pair.called.losses[0] == (first, "broken: UNAVAILABLE: closed: shutdown")
    await pair.served.until(lambda: pair.served.losses)
    assert pair.served.reasons == ["closed: shutdown"]


async def test_a_closing_client_delivers_what_it_had(pair: Pair) -> None:
    pair.down.send_rows([Row(slot, TEXT, 0, 1, "x") for slot in range(1, 10_001)])
    pair.down.close("shutdown")
    await pair.served.until(lambda: pair.served.losses)
    assert sum(len(got.rows) for got in pair.served.got) == 10_000
    assert pair.served.reasons[0] == "peer_closed"
    await pair.called.until(lambda: pair.called.losses)
    assert pair.called.reasons[0] == "closed: shutdown"


async def test_a_dialer_comes_back_with_a_new_link(kind: Kind) -> None:
    served, called = Recorder(), Recorder()
    async with AsyncExitStack() as stack:
        async with kind.running(serving(served)) as server:
            dialer = await stack.enter_async_context(dialling(kind, server.address, called))
            await called.until(lambda: len(called.links) == 1)
        await called.until(lambda: len(called.losses) == 1)
        await stack.enter_async_context(kind.running(serving(served), server.address))
        await called.until(lambda: len(called.links) == 2)
        first, second = called.links
        assert first.id != second.id
        assert dialer.link is second
        first.send_rows([Row(1, TEXT, 0, 1, "late")])
        second.send_rows([Row(1, TEXT, 0, 1, "new")])
        await served.until(lambda: served.got)
        assert [row.text for got in served.got for row in got.rows] == ["new"]


async def test_a_dialer_does_not_give_up(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    served, called = Recorder(), Recorder()
    async with kind.running(serving(served)) as server:
        pass
    async with dialling(kind, server.address, called) as dialer:
        while dialer.failures < 3:  # noqa: ASYNC110 (Nobody is told of a dial that failed.)
            await asyncio.sleep(0.01)
        async with kind.running(serving(served), server.address):
            await called.until(lambda: called.links)
            assert dialer.link is called.links[0]
            assert served.losses == []
    assert [record.message for record in caplog.records].count("no_link") == 1


async def silent(context: Context) -> None:
    """A server that greets, and then neither speaks nor ends."""
    await context.write(greet(hello("server")))
    while isinstance(await context.read(), link_pb2.LinkMessage):
        pass


async def test_a_silent_server_is_lost_after_a_while(kind: Kind) -> None:
    called = Recorder()
    async with kind.running(silent) as server:
        loop = asyncio.get_running_loop()
        async with dialling(kind, server.address, called, QUICK):
            await called.until(lambda: called.links)
            began_s = loop.time()
            await called.until(lambda: called.losses)
            assert called.reasons[0] == "silent: nothing came for 0.4 s"
            assert loop.time() - began_s > 0.35


async def test_a_silent_client_is_lost_after_a_while(kind: Kind) -> None:
    served = Recorder()
    async with (
        kind.running(serving(served, QUICK)) as server,
        open_channel(server.address) as channel,
    ):
        with raw_call(kind, channel) as call:
            await call.write(greet(hello("client")))
            await served.until(lambda: served.losses)
            assert served.reasons == ["silent: nothing came for 0.4 s"]
            assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_client_that_takes_nothing_is_lost_though_it_speaks(kind: Kind) -> None:
    served = Recorder()
    news = link_pb2.LinkMessage(frames=[link_pb2.Frame(ping=ping())])
    async with (
        kind.running(serving(served, QUICK)) as server,
        open_channel(server.address) as channel,
    ):
        with raw_call(kind, channel) as call:
            await call.write(greet(hello("client")))
            await served.until(lambda: served.links)
            text = "y" * 10_000
            served.links[0].send_rows([Row(1, TEXT, pos, 1, text) for pos in range(1000)])
            while not served.losses:
                await call.write(news)
                await asyncio.sleep(0.05)
            assert served.reasons == ["silent: nothing was taken for 0.4 s"]


async def test_idle_ends_keep_each_other_alive(kind: Kind) -> None:
    served, called = Recorder(), Recorder()
    quick = LinkPolicy(heartbeat_s=0.1, peer_lost_s=2.0)
    async with (
        kind.running(serving(served, quick)) as server,
        dialling(kind, server.address, called, quick),
    ):
        await called.until(lambda: called.kinds.count("ping") >= 5)
        await served.until(lambda: served.kinds.count("ping") >= 5)
        assert called.losses == served.losses == []


def wrong_protocol() -> link_pb2.LinkMessage:
    message = greet(hello("client"))
    message.frames[0].hello.protocol = 2
    return message


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([wrong_protocol()], "protocol: the peer speaks protocol 2, this build 1 only"),
        ([link_pb2.LinkMessage()], "protocol: the first message is not a Hello alone"),
        (
            [
                greet(hello("client")),
                link_pb2.LinkMessage(outputs=link_pb2.Outputs(slot=[1, 2], lane=[1])),
            ],
            "protocol: a column has 1 entries where there are 2 rows",
        ),
    ],
)
async def test_a_client_that_breaks_a_rule_is_told_so(
    kind: Kind, messages: list[link_pb2.LinkMessage], why: str
) -> None:
    served = Recorder()
    async with kind.running(serving(served)) as server:
        async with open_channel(server.address) as channel, asyncio.timeout(WAIT_S):
            with raw_call(kind, channel) as call:
                for message in messages:
                    await call.write(message)
                assert await refusal(call) == (grpc.StatusCode.FAILED_PRECONDITION, why)
        assert served.got == []
        assert served.reasons == ([why] if len(messages) > 1 else [])


async def test_bytes_that_are_no_message_end_the_link(kind: Kind) -> None:
    served = Recorder()
    async with kind.running(serving(served)) as server:
        service = "stage.v1.StageService" if kind.stage else "orchestrator.v1.GatewayLinkService"
        async with open_channel(server.address) as channel, asyncio.timeout(WAIT_S):
            attach: Any = channel.stream_stream(f"/stagemesh.api.{service}/Attach")
            call = attach()
            await call.write(greet(hello("client")).SerializeToString())
            await served.until(lambda: served.links)
            await call.write(b"\xff\xff\xff")
            code, details = await refusal(call)
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert details.startswith("protocol: not a message")
            await served.until(lambda: served.losses)
            assert served.got == []


async def test_a_server_that_breaks_a_rule_is_left(kind: Kind) -> None:
    async def garbage(context: Context) -> None:
        await context.write(greet(hello("server")))
        await context.write(link_pb2.LinkMessage(outputs=link_pb2.Outputs(slot=[1])))
        await context.read()
        await context.read()

    called = Recorder()
    async with kind.running(garbage) as server, dialling(kind, server.address, called):
        await called.until(lambda: called.losses)
        assert called.reasons[0].startswith("protocol: a column has 0 entries")
        assert called.got == []
