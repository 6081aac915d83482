"""Asks processes whether they are ready."""

import asyncio
from collections.abc import AsyncGenerator

from grpc import aio
from grpc_health.v1 import health_pb2

from stagemesh.rpc import open_channel

__all__ = ["http_status", "watch_health"]

_HEAD_BYTES_MAX = 64


async def watch_health(address: str, service: str) -> AsyncGenerator[bool]:
    """Yield whether a gRPC service is ready, and then each change, until the connection breaks.

    Waits for the server as long as it takes to come up.
    """
    async with open_channel(address) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        call = watch(health_pb2.HealthCheckRequest(service=service), wait_for_ready=True)
        try:
            async for answer in call:
                yield answer.status == health_pb2.HealthCheckResponse.SERVING
        except aio.AioRpcError:
            yield False
        finally:
            call.cancel()


async def http_status(address: str, path: str, *, timeout_s: float) -> int:
    """Get a path over plain HTTP and give the status; 0 if there is no answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _http_status(address, path)
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0


async def _http_status(address: str, path: str) -> int:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode("ascii"))
        line = await reader.read(_HEAD_BYTES_MAX)
        return int(line.split(b" ", 2)[1])
    finally:
        writer.close()
