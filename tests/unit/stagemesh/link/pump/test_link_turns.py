"""What a link's reader leaves to others between two messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump import Link, LinkPolicy, Received
from stagemesh.link.pump.greeting import greet
from stagemesh.media import Modality, lane_of
from tests.helpers.link_ends import ManualClock, MemoryWire, Recorder, hello, ping

TEXT = lane_of(0, 0, Modality.TEXT)
SLOW = LinkPolicy(heartbeat_s=100.0, peer_lost_s=300.0)
FRAMES = link_pb2.LinkMessage(
    frames=[link_pb2.Frame(abort=link_pb2.Abort(slot=slot)) for slot in range(1, 17)]
)
ROWS = link_pb2.LinkMessage(
    outputs=link_pb2.Outputs(slot=[1], lane=[TEXT], pos=[0], units=[1], text=["x"]),
    frames=[link_pb2.Frame(output=link_pb2.Output(slot=1, lane=TEXT, units=1))],
)


@asynccontextmanager
async def attached(wire: MemoryWire, events: Recorder, clock: ManualClock) -> AsyncIterator[None]:
    """A link that is up, over a wire in memory."""
    link = Link(wire, hello=lambda: hello("me"), ping=ping, events=events, policy=SLOW, clock=clock)
    task = asyncio.create_task(link.run())
    wire.inbox.put_nowait(greet(hello("peer")))
    await events.until(lambda: events.links)
    yield
    task.cancel()
    await asyncio.wait([task])


async def turns_between_two(message: link_pb2.LinkMessage, *, turn_s: float = 0.0) -> int:
    """How often the loop turns between two messages that wait already.

    By the link's clock its owner takes a second for each, and everybody else `turn_s` a turn.
    """
    wire, events, clock = MemoryWire(), Recorder(), ManualClock()

    def work(link: Link, received: Received) -> None:
        clock.now_s += 1.0

    events.when_received = work
    turns = 0
    async with attached(wire, events, clock):
        for _ in range(2):
            wire.inbox.put_nowait(message)
        while len(events.got) < 2:
            await asyncio.sleep(0)
            clock.now_s += turn_s
            turns += len(events.got) == 1
    return turns


async def test_after_frames_the_loop_turns_once_for_each_before_the_next_message() -> None:
    assert await turns_between_two(FRAMES) == 16


async def test_a_reader_gives_way_for_some_times_what_its_frames_took_at_most() -> None:
    assert await turns_between_two(FRAMES, turn_s=1.0) == 4


async def test_rows_are_read_without_a_pause() -> None:
    assert await turns_between_two(ROWS) == 0
