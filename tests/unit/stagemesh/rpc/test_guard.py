"""What the guard makes of exceptions, without a server around it."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio

from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorInfo, error_for
from stagemesh.rpc import ERROR_TRAILER
from stagemesh.rpc.guard import Guard
from stagemesh.wire import error_to_proto


class Aborted(Exception):
    """What `abort` raises here."""


class Context:
    """Remembers how it was aborted."""

    def __init__(self) -> None:
        self.trailers: dict[str, Any] = {}

    async def abort(self, code: grpc.StatusCode, details: str, trailers: Any) -> None:
        """Do as gRPC does."""
        del code, details
        self.trailers = dict(trailers)
        raise Aborted


async def guarded(handler: Any) -> Any:
    async def continuation(details: Any) -> Any:
        del details
        return handler

    class Details:
        method = "/service/Method"
        invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()

    return await Guard().intercept_service(continuation, Details())


async def failing(_: Any, __: Any) -> Any:
    raise MeshError(error_for("draining"))


async def streaming(_: Any, __: Any) -> AsyncIterator[int]:
    yield 1
    raise MeshError(error_for("stalled"))


def said(context: Context) -> bytes:
    return bytes(context.trailers[ERROR_TRAILER])


def bytes_of(info: ErrorInfo) -> bytes:
    return error_to_proto(info).SerializeToString()


async def test_a_coroutine_s_error_is_told() -> None:
    handler = await guarded(grpc.unary_unary_rpc_method_handler(failing))
    context = Context()
    with pytest.raises(Aborted):
        await handler.unary_unary(None, context)
    assert said(context) == bytes_of(error_for("draining"))


async def test_a_generator_s_error_is_told_after_what_it_gave() -> None:
    handler = await guarded(grpc.unary_stream_rpc_method_handler(streaming))
    context, got = Context(), []
    with pytest.raises(Aborted):
        async for item in handler.unary_stream(None, context):
            got.append(item)  # noqa: PERF401 - the items before the error count.
    assert got == [1]
    assert said(context) == bytes_of(error_for("stalled"))


async def test_grpc_s_own_errors_pass() -> None:
    async def aborted(_: Any, __: Any) -> Any:
        raise aio.AbortError

    handler = await guarded(grpc.stream_unary_rpc_method_handler(aborted))
    with pytest.raises(aio.AbortError):
        await handler.stream_unary(None, Context())


async def test_an_unknown_method_stays_unknown() -> None:
    assert await guarded(None) is None
