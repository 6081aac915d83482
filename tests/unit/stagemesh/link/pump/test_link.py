import asyncio
from collections.abc import AsyncIterator

import pytest

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import Grant, Row
from stagemesh.link.pump import (
    FRAME_BYTES_MAX,
    FrameTooLarge,
    Link,
    LinkPolicy,
    Received,
    WireFault,
    decode,
)
from stagemesh.link.pump.greeting import greet
from stagemesh.media import Body, Modality, lane_of
from tests.helpers.link_ends import WAIT_S, ManualClock, MemoryWire, Recorder, hello, ping

TEXT = lane_of(0, 0, Modality.TEXT)
SLOW = LinkPolicy(heartbeat_s=100.0, peer_lost_s=300.0)


class Bench:
    """A link over a wire in memory, running in a task of its own."""

    def __init__(self, policy: LinkPolicy) -> None:
        self.wire = MemoryWire()
        self.events = Recorder()
        self.clock = ManualClock()
        self.link = Link(
            self.wire,
            hello=lambda: hello("me"),
            ping=ping,
            events=self.events,
            policy=policy,
            clock=self.clock,
        )
        self.task = asyncio.create_task(self.link.run())

    async def attach(self) -> None:
        """Exchange greetings."""
        await self.written()
        self.wire.inbox.put_nowait(greet(hello("peer")))
        await self.events.until(lambda: self.events.links)

    def tick(self, passed_s: float) -> None:
        """Let the timer fire after some time."""
        self.clock.now_s += passed_s
        self.link._look()

    async def written(self) -> link_pb2.LinkMessage:
        """The next message that the link wrote."""
        async with asyncio.timeout(WAIT_S):
            return await self.wire.written.get()

    async def received(self, count: int) -> None:
        """Wait until so many messages were received."""
        await self.events.until(lambda: len(self.events.got) == count)

    async def ended(self) -> str:
        """The reason, once the link has ended."""
        async with asyncio.timeout(WAIT_S):
            return await self.task


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench(SLOW)
    await bench.attach()
    yield bench
    bench.task.cancel()
    await asyncio.wait([bench.task])


def row(slot: int, pos: int = 0, text: str = "x") -> Row:
    return Row(slot, TEXT, pos, 1, text)


def ping_message() -> link_pb2.LinkMessage:
    return link_pb2.LinkMessage(frames=[link_pb2.Frame(ping=ping())])


async def test_hello_goes_first_and_the_peer_is_known_when_attached(bench: Bench) -> None:
    assert bench.events.links == [bench.link]
    assert bench.link.peer.id == "peer"


async def test_links_have_ids_of_their_own() -> None:
    first, second = Bench(SLOW), Bench(SLOW)
    assert first.link.id < second.link.id
    for one in (first, second):
        one.task.cancel()
        await asyncio.wait([one.task])


async def test_what_is_sent_at_once_goes_as_one_message(bench: Bench) -> None:
    for slot in range(1, 65):
        bench.link.send_rows([row(slot)])
    bench.link.send_grants([Grant(3, 0, 5, 6)])
    bench.link.send_frame(link_pb2.Frame(abort=link_pb2.Abort(slot=99)))
    [received] = decode(await bench.written())
    assert [one.slot for one in received.rows] == list(range(1, 65))
    assert (len(received.frames), received.grants) == (1, [Grant(3, 0, 5, 6)])


async def test_what_comes_during_a_write_is_the_next_batch(bench: Bench) -> None:
    bench.wire.may_write.clear()
    bench.link.send_rows([row(1)])
    await asyncio.sleep(0)
    for pos in range(1, 9):
        bench.link.send_rows([row(1, pos)])
        await asyncio.sleep(0)
    bench.wire.may_write.set()
    first, second = await bench.written(), await bench.written()
    assert list(first.outputs.pos) == [0]
    assert list(second.outputs.pos) == list(range(1, 9))


@pytest.mark.parametrize(
    "frame",
    [
        link_pb2.Frame(terminal=link_pb2.Terminal(slot=5)),
        link_pb2.Frame(open=link_pb2.Open(slot=5)),
        link_pb2.Frame(
            submit=link_pb2.Submit(roles=[link_pb2.RoleSpec(slot=4), link_pb2.RoleSpec(slot=5)])
        ),
        link_pb2.Frame(output=link_pb2.Output(slot=5)),
    ],
)
async def test_a_row_never_overtakes_a_frame_of_its_slot(
    bench: Bench, frame: link_pb2.Frame
) -> None:
    bench.link.send_frame(frame)
    bench.link.send_rows([row(5)])
    first, second = await bench.written(), await bench.written()
    assert list(first.frames) == [frame]
    assert not first.HasField("outputs")
    assert list(second.outputs.slot) == [5]


async def test_a_frame_that_no_message_can_hold_is_refused(bench: Bench) -> None:
    cause = "x" * FRAME_BYTES_MAX
    with pytest.raises(FrameTooLarge, match="at most"):
        bench.link.send_frame(link_pb2.Frame(abort=link_pb2.Abort(slot=1, cause=cause)))
    bench.link.send_rows([row(1)])
    assert not (await bench.written()).frames


async def test_a_row_with_a_body_goes_as_an_output_frame(bench: Bench) -> None:
    chunk = Row(1, lane_of(1, 0, Modality.AUDIO), 0, 2, body=Body(inline=b"abcd"))
    bench.link.send_rows([chunk])
    message = await bench.written()
    assert message.frames[0].WhichOneof("kind") == "output"
    assert decode(message)[0].rows == [chunk]


async def test_the_peer_closing_ends_the_link(bench: Bench) -> None:
    bench.wire.inbox.put_nowait(None)
    assert await bench.ended() == "peer_closed"
    assert bench.events.reasons == ["peer_closed"]


async def test_a_broken_stream_ends_the_link(bench: Bench) -> None:
    bench.wire.break_off("reset by peer")
    assert await bench.ended() == "broken: reset by peer"
    assert bench.events.reasons == ["broken: reset by peer"]


async def test_what_is_sent_after_the_end_goes_nowhere(bench: Bench) -> None:
    bench.wire.break_off()
    await bench.ended()
    bench.link.send_rows([row(1)])
    bench.link.send_grants([Grant(1, 0, 1, 1)])
    bench.link.ping_now()
    bench.link.close("late")
    assert bench.wire.written.empty()
    assert len(bench.events.losses) == 1


async def test_columns_that_do_not_agree_end_the_link(bench: Bench) -> None:
    bench.wire.inbox.put_nowait(link_pb2.LinkMessage(outputs=link_pb2.Outputs(slot=[1])))
    assert (await bench.ended()).startswith("protocol: a column has 0 entries")
    assert bench.events.got == []


async def test_what_is_no_message_ends_the_link(bench: Bench) -> None:
    bench.wire.inbox.put_nowait(WireFault("not a message"))
    assert await bench.ended() == "protocol: not a message"


async def test_a_second_hello_ends_the_link(bench: Bench) -> None:
    bench.wire.inbox.put_nowait(greet(hello("peer")))
    assert await bench.ended() == "protocol: a second Hello"


async def test_a_peer_of_another_protocol_is_never_attached() -> None:
    bench = Bench(SLOW)
    message = greet(hello("peer"))
    message.frames[0].hello.protocol = 2
    bench.wire.inbox.put_nowait(message)
    assert (await bench.ended()).startswith("protocol: the peer speaks protocol 2")
    assert bench.events.links == []
    assert bench.events.losses == []


async def test_closing_writes_what_waits_first(bench: Bench) -> None:
    bench.link.send_rows([row(1)])
    bench.link.close("drained")
    bench.link.send_rows([row(2)])
    bench.wire.inbox.put_nowait(ping_message())
    assert await bench.ended() == "closed: drained"
    assert list((await bench.written()).outputs.slot) == [1]
    assert bench.wire.finished
    assert bench.wire.written.empty()
    assert bench.events.got == []
    assert bench.events.reasons == ["closed: drained"]


async def test_closing_during_the_greeting_loses_nothing() -> None:
    bench = Bench(SLOW)
    bench.wire.may_write.clear()
    bench.wire.inbox.put_nowait(greet(hello("peer")))
    await bench.events.until(lambda: bench.events.links)
    bench.link.send_rows([row(1)])
    bench.link.close("drained")
    bench.wire.may_write.set()
    assert await bench.ended() == "closed: drained"
    assert (await bench.written()).frames[0].HasField("hello")
    assert list((await bench.written()).outputs.slot) == [1]


async def test_a_caller_that_closes_waits_for_the_server_to_end_the_call(bench: Bench) -> None:
    bench.wire.peer_closes = True
    bench.link.close("drained")
    bench.wire.inbox.put_nowait(None)
    assert await bench.ended() == "closed: drained"


async def test_closing_does_not_wait_long_for_a_peer_that_takes_nothing() -> None:
    bench = Bench(LinkPolicy(linger_s=0.01))
    await bench.attach()
    bench.wire.may_write.clear()
    bench.link.send_rows([row(1)])
    bench.link.close("drained")
    assert await bench.ended() == "closed: drained"


async def test_a_link_that_is_closed_while_it_is_told_hears_no_more(bench: Bench) -> None:
    bench.events.when_received = lambda link, _: link.close("enough")
    for _ in range(3):
        bench.wire.inbox.put_nowait(ping_message())
    assert await bench.ended() == "closed: enough"
    assert len(bench.events.got) == 1


async def test_a_link_that_is_closed_between_steps_hears_no_more(bench: Bench) -> None:
    bench.events.when_received = lambda link, _: link.close("enough")
    abort = link_pb2.Frame(abort=link_pb2.Abort(slot=1))
    output = link_pb2.Frame(output=link_pb2.Output(slot=1, lane=TEXT))
    bench.wire.inbox.put_nowait(link_pb2.LinkMessage(frames=[abort, output]))
    assert await bench.ended() == "closed: enough"
    assert [received.rows for received in bench.events.got] == [[]]


async def test_a_link_that_is_closed_before_the_greeting_is_never_attached() -> None:
    bench = Bench(LinkPolicy(linger_s=0.01))
    bench.wire.may_write.clear()
    await asyncio.sleep(0)
    bench.link.close("shutdown")
    bench.wire.inbox.put_nowait(greet(hello("peer")))
    assert await bench.ended() == "closed: shutdown"
    assert bench.events.links == []


async def test_a_heartbeat_goes_when_nothing_else_did(bench: Bench) -> None:
    bench.tick(99.0)
    bench.tick(1.0)
    message = await bench.written()
    assert [frame.ping.steps for frame in message.frames] == [3]
    bench.clock.now_s += 50.0
    bench.link.send_rows([row(1)])
    assert (await bench.written()).HasField("outputs")
    bench.tick(99.0)
    bench.link.send_rows([row(2)])
    assert not (await bench.written()).frames


async def test_a_silent_peer_is_lost_once(bench: Bench) -> None:
    bench.tick(100.0)
    bench.tick(100.0)
    assert not bench.task.done()
    bench.tick(100.0)
    assert await bench.ended() == "silent: nothing came for 300 s"
    assert bench.events.reasons == ["silent: nothing came for 300 s"]


async def test_a_peer_that_sends_is_not_lost(bench: Bench) -> None:
    for count in range(1, 10):
        bench.tick(100.0)
        bench.wire.inbox.put_nowait(await bench.written())
        await bench.received(count)
    assert bench.events.losses == []


async def test_a_peer_that_takes_nothing_is_lost_though_it_speaks(bench: Bench) -> None:
    bench.wire.may_write.clear()
    bench.link.send_rows([row(1)])
    for count in range(1, 4):
        bench.wire.inbox.put_nowait(ping_message())
        await bench.received(count)
        bench.tick(100.0)
    assert await bench.ended() == "silent: nothing was taken for 300 s"


async def test_heartbeats_do_not_pile_up_behind_a_write(bench: Bench) -> None:
    bench.wire.may_write.clear()
    bench.link.send_rows([row(1)])
    await asyncio.sleep(0)
    bench.tick(100.0)
    bench.tick(100.0)
    bench.wire.may_write.set()
    assert (await bench.written()).HasField("outputs")
    bench.link.close("done")
    await bench.ended()
    assert bench.wire.written.empty()


async def test_a_process_that_stood_still_sends_nothing_any_more(bench: Bench) -> None:
    bench.clock.now_s += 301.0
    bench.link.send_rows([row(1)])
    assert await bench.ended() == "stood_still"
    assert bench.wire.written.empty()
    assert bench.events.reasons == ["stood_still"]


async def test_a_process_that_stood_still_takes_nothing_any_more(bench: Bench) -> None:
    bench.clock.now_s += 301.0
    bench.wire.inbox.put_nowait(ping_message())
    assert await bench.ended() == "stood_still"
    assert bench.events.got == []


async def test_the_timer_notices_that_the_process_stood_still(bench: Bench) -> None:
    bench.tick(301.0)
    assert await bench.ended() == "stood_still"


async def test_a_pause_too_short_to_matter_is_forgiven(bench: Bench) -> None:
    bench.tick(100.0)
    bench.tick(250.0)
    bench.tick(99.0)
    assert not bench.task.done()
    bench.tick(1.0)
    assert (await bench.ended()).startswith("silent")


async def test_an_outbox_that_runs_over_ends_the_link() -> None:
    bench = Bench(LinkPolicy(outbox_bytes_max=1000))
    await bench.attach()
    bench.wire.may_write.clear()
    bench.link.send_rows([row(1, 0, "y" * 2000)])
    assert await bench.ended() == "outbox_full"


async def test_a_cancelled_link_is_lost_too(bench: Bench) -> None:
    bench.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.ended()
    assert bench.events.reasons == ["cancelled"]


async def test_an_error_of_the_program_is_raised_and_the_link_is_lost(bench: Bench) -> None:
    def fail(link: Link, received: Received) -> None:
        raise LookupError("a bug")

    bench.events.when_received = fail
    bench.wire.inbox.put_nowait(ping_message())
    with pytest.raises(ExceptionGroup) as caught:
        await bench.ended()
    assert caught.value.subgroup(LookupError) is not None
    assert bench.events.reasons == ["fault"]
