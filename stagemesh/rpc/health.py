"""The standard gRPC health service, told synchronously, whose watchers end with the server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Never

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

__all__ = ["Health"]

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):
    """Who is ready. `""` is liveness, true from the start; any other name is what `set` said."""

    def __init__(self) -> None:
        self._serving = {"": True}
        self._changed = asyncio.Event()
        self._closed = False

    def set(self, name: str, serving: bool) -> None:
        """Say whether `name` is ready; after `close` nothing is any more."""
        if not self._closed and self._serving.get(name) is not serving:
            self._serving[name] = serving
            self._stir()

    def close(self) -> None:
        """Make every name not ready for good, and let every watcher end with that."""
        self._serving = dict.fromkeys(self._serving, False)
        self._closed = True
        self._stir()

    async def Check(  # noqa: N802 - the name is gRPC's.
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """Answer one probe; a name that was never set is `NOT_FOUND`."""
        if request.service not in self._serving:
            await _not_found(context, request.service)
        return self._answer(request.service)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Tell the state of one name, and then each change, until the server stops."""
        del context
        told = None
        while True:
            changed, answer = self._changed, self._answer(request.service)
            if answer != told:
                yield answer
                told = answer
            elif self._closed:
                return
            else:
                await changed.wait()

    def _answer(self, name: str) -> health_pb2.HealthCheckResponse:
        serving = self._serving.get(name)
        if serving is None:
            return health_pb2.HealthCheckResponse(status=_SERVICE_UNKNOWN)
        return health_pb2.HealthCheckResponse(status=_SERVING if serving else _NOT_SERVING)

    def _stir(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _not_found(context: aio.ServicerContext[Any, Any], name: str) -> Never:
    await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {name!r}")
    raise AssertionError("abort returned")
