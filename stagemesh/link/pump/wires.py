"""The two ends of a gRPC stream, seen alike."""

import asyncio
from typing import Final, Protocol

from google.protobuf.message import DecodeError
from grpc import aio

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump.codec import WireFault

__all__ = ["Broken", "CallWire", "ServedWire", "Wire"]

# `InvalidStateError` is what a finished call answers to a write.
_FAILURES: Final = (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError)


class Broken(ConnectionError):
    """The stream broke, or was never opened; the message says why."""


class Wire(Protocol):
    """A stream of link messages."""

    async def read(self) -> link_pb2.LinkMessage | None:
        """Wait for the next message; None once the peer has closed its side.

        Raises:
            Broken: If the stream broke.
            WireFault: If what came is no message.
        """

    async def write(self, message: link_pb2.LinkMessage) -> None:
        """Write a message; returns when the transport took it.

        Raises:
            Broken: If the stream broke.
        """

    async def finish(self) -> bool:
        """Close this side after the last message; return whether the peer is to close its own."""


class CallWire:
    """The client's end."""

    def __init__(
        self, call: aio.StreamStreamCall[link_pb2.LinkMessage, link_pb2.LinkMessage]
    ) -> None:
        self._call = call
        # Not `call.read`: once the status is there, it forgets the messages that came before it.
        self._messages = aiter(call)

    async def read(self) -> link_pb2.LinkMessage | None:
        """See `Wire`."""
        try:
            return await anext(self._messages, None)
        except DecodeError as error:
            raise WireFault(f"not a message: {error}") from error
        except _FAILURES as error:
            raise Broken(_text_of(error)) from error

    async def write(self, message: link_pb2.LinkMessage) -> None:
        """See `Wire`."""
        try:
            await self._call.write(message)
        except _FAILURES as error:
            raise Broken(_text_of(error)) from error

    async def finish(self) -> bool:
        """See `Wire`: a cancelled call may lose what was just written, so the server ends it."""
        await self._call.done_writing()
        return True


class ServedWire:
    """The server's end; the stream ends when the servicer's method returns."""

    def __init__(
        self, context: aio.ServicerContext[link_pb2.LinkMessage, link_pb2.LinkMessage]
    ) -> None:
        self._context = context

    async def read(self) -> link_pb2.LinkMessage | None:
        """See `Wire`."""
        try:
            message: object = await self._context.read()
        except DecodeError as error:
            raise WireFault(f"not a message: {error}") from error
        except _FAILURES as error:
            raise Broken(_text_of(error)) from error
        return message if isinstance(message, link_pb2.LinkMessage) else None

    async def write(self, message: link_pb2.LinkMessage) -> None:
        """See `Wire`."""
        try:
            await self._context.write(message)
        except _FAILURES as error:
            raise Broken(_text_of(error)) from error

    async def finish(self) -> bool:
        """See `Wire`."""
        return False


def _text_of(error: BaseException) -> str:
    if isinstance(error, aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
