import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc import aio

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump import WireFault
from stagemesh.link.pump.wires import Broken, CallWire, ServedWire, Wire

MESSAGE = link_pb2.LinkMessage(frames=[link_pb2.Frame(ping=link_pb2.Ping())])


class Stream:
    """Either end of a gRPC stream: answers what the test says."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.half_closed = False

    async def read(self) -> object:
        """See `grpc.aio`."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def __aiter__(self) -> AsyncIterator[object]:
        """See `grpc.aio`: how a caller reads."""
        if (message := await self.read()) is not aio.EOF:
            yield message

    async def write(self, _: object) -> None:
        """See `grpc.aio`."""
        if isinstance(self.answer, Exception):
            raise self.answer

    async def done_writing(self) -> None:
        """See `grpc.aio`."""
        self.half_closed = True


def both(answer: object) -> list[Wire]:
    stream: Any = Stream(answer)
    return [CallWire(stream), ServedWire(stream)]


def unavailable() -> aio.AioRpcError:
    return aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), details="no route"
    )


async def test_a_message_is_read_and_the_end_of_the_stream_is_none() -> None:
    assert [await wire.read() for wire in both(MESSAGE)] == [MESSAGE, MESSAGE]
    assert [await wire.read() for wire in both(aio.EOF)] == [None, None]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (unavailable(), "UNAVAILABLE: no route"),
        (asyncio.InvalidStateError("RPC already finished."), "RPC already finished."),
        (aio.InternalError(), "InternalError"),
    ],
)
async def test_a_failure_of_the_stream_is_broken(error: Exception, text: str) -> None:
    for wire in both(error):
        with pytest.raises(Broken, match=text):
            await wire.read()
        with pytest.raises(Broken, match=text):
            await wire.write(MESSAGE)


async def test_bytes_that_are_no_message_are_the_peers_fault() -> None:
    for wire in both(DecodeError("corrupt")):
        with pytest.raises(WireFault, match="not a message: corrupt"):
            await wire.read()


async def test_a_caller_half_closes_and_a_server_returns() -> None:
    stream = Stream(MESSAGE)
    assert await CallWire(cast(Any, stream)).finish()
    assert stream.half_closed
    assert not await ServedWire(cast(Any, stream)).finish()
