"""A real gRPC server for tests of `stagemesh.rpc`: `PayloadService` with behaviours to order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from grpc import aio

from stagemesh.api.stage.v1 import payload_service_pb2, payload_service_pb2_grpc
from stagemesh.rpc import RunningServer, Tls, start_server

__all__ = ["SERVICE", "Echo", "start_echo", "stub_of"]

SERVICE = payload_service_pb2.DESCRIPTOR.services_by_name["PayloadService"].full_name


class Echo(payload_service_pb2_grpc.PayloadServiceServicer):
    """`Release` does as it is told; `Fetch` sends one chunk and then waits for `go_on`."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.calls = 0
        self.on_release: Callable[[str, aio.ServicerContext[Any, Any]], Any] | None = None

    async def Release(  # noqa: N802
        self,
        request: payload_service_pb2.ReleaseRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> payload_service_pb2.ReleaseResponse:
        """Count, and do what the test ordered."""
        self.calls += 1
        if self.on_release:
            await self.on_release(request.request_id, context)
        return payload_service_pb2.ReleaseResponse(released=len(request.handle_ids))

    async def Fetch(  # noqa: N802
        self,
        request: payload_service_pb2.FetchRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[payload_service_pb2.FetchResponse]:
        """Send `first`, wait, send `last`."""
        del context
        yield payload_service_pb2.FetchResponse(data=b"first")
        if request.handle_id == "raise":
            raise ValueError("a secret")
        await self.go_on.wait()
        yield payload_service_pb2.FetchResponse(data=b"last")


async def start_echo(
    echo: Echo,
    *,
    address: str = "127.0.0.1:0",
    tls: Tls | None = None,
    reflection: bool = False,
) -> RunningServer:
    """Start a server of it."""
    return await start_server(
        address,
        register=lambda server: payload_service_pb2_grpc.add_PayloadServiceServicer_to_server(
            echo, server
        ),
        services=[SERVICE],
        tls=tls,
        reflection=reflection,
    )


def stub_of(channel: aio.Channel) -> payload_service_pb2_grpc.PayloadServiceStub:
    """Give the stub of it."""
    return payload_service_pb2_grpc.PayloadServiceStub(channel)
