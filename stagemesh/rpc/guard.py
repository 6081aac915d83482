"""The last line of every call: a `MeshError` becomes its status, any other exception our bug.

Without it gRPC would send an exception's text to the client, and call a message that cannot be
parsed `UNKNOWN`, which proxies count as the server's failure.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Never, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from stagemesh.errors import MeshError, invalid
from stagemesh.outcome import error_for
from stagemesh.rpc.status import abort

__all__ = ["Guard"]

_log = logging.getLogger(__name__)

# gRPC's stubs type the behaviours of synchronous servers only.
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_MaybeHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_Behaviour = Callable[[Any, Any], Any]

_UNREADABLE: Final = object()
"""Stands for a request that is no message of its type."""

_KINDS: dict[tuple[bool, bool], tuple[str, Callable[..., _Handler]]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


class Guard(aio.ServerInterceptor):
    """Stands around every behaviour of a server, coroutines and asynchronous generators alike."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_MaybeHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _MaybeHandler:
        """Give gRPC the behaviour with the guard around it."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        name, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
        deserialize = handler.request_deserializer
        if deserialize is not None and not handler.request_streaming:
            deserialize = _forgiving(deserialize)
        return make(
            _guarded(getattr(handler, name), handler_call_details.method),
            request_deserializer=deserialize,
            response_serializer=handler.response_serializer,
        )


def _forgiving(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Leave it to the behaviour's guard to refuse what cannot be parsed: here gRPC would not."""

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _UNREADABLE

    return read


def _guarded(behaviour: _Behaviour, method: str) -> _Behaviour:
    async def stream(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            _check_readable(request)
            async with aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:  # The boundary: whatever it is, the client gets a typed answer.
            await _answer(error, context, method)

    async def single(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        try:
            _check_readable(request)
            return await behaviour(request, context)
        except Exception as error:  # The same boundary.
            await _answer(error, context, method)

    return stream if inspect.isasyncgenfunction(behaviour) else single


def _check_readable(request: Any) -> None:
    if request is _UNREADABLE:
        raise invalid("The message cannot be parsed.")


async def _answer(error: Exception, context: aio.ServicerContext[Any, Any], method: str) -> Never:
    if isinstance(error, aio.BaseError):  # gRPC's own: the call is aborted or broken already.
        raise error
    if isinstance(error, MeshError):
        await abort(context, error.info)
    _log.error("call_failed", exc_info=error, extra={"method": method})
    await abort(context, error_for("internal_error"))
