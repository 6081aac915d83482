"""The two services that serve links, on real gRPC, with nothing behind them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from grpc import aio

from stagemesh.api.orchestrator.v1 import gateway_link_service_pb2_grpc
from stagemesh.api.stage.v1 import stage_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump import Backoff, Dialer, LinkPolicy, serve_link
from stagemesh.rpc import RunningServer, open_channel, start_server
from tests.helpers.link_ends import Recorder, hello, ping

__all__ = ["POLICY", "Context", "Kind", "dialling", "raw_call", "serving"]

POLICY = LinkPolicy()

Context = aio.ServicerContext[link_pb2.LinkMessage, link_pb2.LinkMessage]
Serve = Callable[[Context], Any]


class StageEnd(stage_service_pb2_grpc.StageServiceServicer):
    """A worker's servicer with nothing behind it."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def Attach(  # type: ignore[override] # noqa: N802 (gRPC's other style, gRPC's name)
        self, request_iterator: object, context: Context
    ) -> None:
        """Serve a link."""
        await self._serve(context)

    async def Describe(self, request: object, context: object) -> Any:  # noqa: N802
        """Not part of these tests."""
        raise AssertionError


class GatewayLinkEnd(gateway_link_service_pb2_grpc.GatewayLinkServiceServicer):
    """An orchestrator's servicer with nothing behind it."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def Attach(  # type: ignore[override] # noqa: N802 (gRPC's other style, gRPC's name)
        self, request_iterator: object, context: Context
    ) -> None:
        """Serve a link."""
        await self._serve(context)


class Kind:
    """One of the two services."""

    def __init__(self, name: str) -> None:
        self.stage = name == "stage"

    @asynccontextmanager
    async def running(
        self, serve: Serve, address: str = "127.0.0.1:0"
    ) -> AsyncIterator[RunningServer]:
        """A server whose links are served by `serve`, killed at the end."""

        def register(server: aio.Server) -> None:
            if self.stage:
                stage_service_pb2_grpc.add_StageServiceServicer_to_server(StageEnd(serve), server)
            else:
                gateway_link_service_pb2_grpc.add_GatewayLinkServiceServicer_to_server(
                    GatewayLinkEnd(serve), server
                )

        server = await start_server(address, register=register, services=())
        try:
            yield server
        finally:
            await server.stop(0)

    def attach(self, channel: aio.Channel) -> Any:
        """The stub's call."""
        if self.stage:
            return stage_service_pb2_grpc.StageServiceStub(channel).Attach
        return gateway_link_service_pb2_grpc.GatewayLinkServiceStub(channel).Attach


def serving(events: Recorder, policy: LinkPolicy = POLICY) -> Serve:
    """What a servicer does: serve a link and tell `events`."""

    async def serve(context: Context) -> None:
        await serve_link(
            context, hello=lambda: hello("server"), ping=ping, events=events, policy=policy
        )

    return serve


@asynccontextmanager
async def dialling(
    kind: Kind, address: str, events: Recorder, policy: LinkPolicy = POLICY
) -> AsyncIterator[Dialer]:
    """A dialer at work."""
    async with open_channel(address) as channel:
        dialer = Dialer(
            kind.attach(channel),
            hello=lambda: hello("client"),
            ping=ping,
            events=events,
            policy=policy,
            backoff=Backoff(first_s=0.01, longest_s=0.05),
            name=address,
        )
        task = asyncio.create_task(dialer.run())
        try:
            yield dialer
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


@contextmanager
def raw_call(kind: Kind, channel: aio.Channel) -> Iterator[Any]:
    """A call without a pump behind it."""
    call = kind.attach(channel)()
    try:
        yield call
    finally:
        call.cancel()
