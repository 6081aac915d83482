import asyncio
from typing import Any, cast

import grpc
import pytest
from grpc import aio

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump import LinkPolicy, serve_link
from stagemesh.link.pump.greeting import greet
from tests.helpers.link_ends import WAIT_S, Recorder, hello, ping


class Context:
    """A servicer's context whose peer is the test."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[object] = asyncio.Queue()
        self.status: tuple[grpc.StatusCode, str] | None = None

    async def send_initial_metadata(self, _: object) -> None:
        """See `grpc.aio`."""

    async def read(self) -> object:
        """See `grpc.aio`."""
        return await self.inbox.get()

    async def write(self, _: object) -> None:
        """See `grpc.aio`."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """See `grpc.aio`."""
        self.status = (code, details)


async def serve(context: Context, events: Recorder) -> None:
    async with asyncio.timeout(WAIT_S):
        await serve_link(
            cast(Any, context), hello=hello, ping=ping, events=events, policy=LinkPolicy()
        )


async def test_a_peer_that_closes_gets_ok() -> None:
    context, events = Context(), Recorder()
    context.inbox.put_nowait(greet(hello("client")))
    context.inbox.put_nowait(aio.EOF)
    await serve(context, events)
    assert context.status is None
    assert events.reasons == ["peer_closed"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (link_pb2.LinkMessage(), grpc.StatusCode.FAILED_PRECONDITION),
        (greet(hello("client")), grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_a_peer_is_told_why_this_end_ended_the_link(
    message: link_pb2.LinkMessage, code: grpc.StatusCode
) -> None:
    context, events = Context(), Recorder()
    context.inbox.put_nowait(message)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(context, events))
        if code is grpc.StatusCode.UNAVAILABLE:
            await events.until(lambda: events.links)
            events.links[0].close("shutdown")
    assert context.status is not None
    assert context.status[0] is code
    expected = "closed: shutdown" if events.links else "protocol: the first message"
    assert context.status[1].startswith(expected)
