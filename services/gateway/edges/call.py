"""One HTTP request and its answer, on bare ASGI."""

import asyncio
import math
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from services.gateway.client import Exchange, Orchestrators
from services.gateway.core.access import AccessRule
from services.gateway.core.limits import EdgeLimits
from services.gateway.core.replies import ReplyHead, error_body
from services.gateway.core.requests import Origin
from services.gateway.edges.metrics import GatewayMetrics
from stagemesh.errors import MeshError, invalid, unsupported
from stagemesh.ids import RequestId, new_request_id
from stagemesh.media import Request
from stagemesh.outcome import ErrorInfo, Status, error_for, retry_headers

__all__ = ["JSON", "Backend", "Call"]

JSON: Final = "application/json"

_LABEL_CHARS_MAX: Final = 128
_DISCARD_FACTOR: Final = 4


class Backend:
    """What every endpoint works with; it belongs to the composition root."""

    def __init__(
        self,
        orchestrators: Orchestrators,
        *,
        access: AccessRule,
        limits: EdgeLimits,
        metrics: GatewayMetrics,
    ) -> None:
        self.orchestrators = orchestrators
        self.access = access
        self.limits = limits
        self.metrics = metrics
        self.bodies_bytes = 0
        self.open_calls = 0


class Call:
    """A request that is being answered. Only headers that are asked for by name have effects."""

    __slots__ = (
        "_body_bytes", "_send", "backend", "begun_s", "names", "path", "receive", "request_id",
        "route", "scope", "status",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, backend: Backend) -> None:
        self.scope = scope
        self.receive = receive
        self.backend = backend
        self.path: str = scope["path"]
        self.request_id: RequestId = new_request_id()
        self.route = "other"
        self.status = 0
        """Of the answer, once its head was sent."""
        self.begun_s = time.perf_counter()
        self.names: Mapping[str, str] = {}
        """What the body calls the fields that errors may name, where it differs."""
        self._send = send
        self._body_bytes = 0

    def header(self, name: bytes) -> str:
        """Give the first header of this lower-case name, or nothing."""
        for key, value in self.scope["headers"]:
            if key == name:
                text: str = value.decode("latin-1")
                return text
        return ""

    def origin(self) -> Origin:
        """Give what does not come from the body: the client's label, and a fresh seed."""
        label = self.header(b"x-request-id")
        if not label.isprintable():
            label = ""
        return Origin(label=label[:_LABEL_CHARS_MAX], seed=secrets.randbits(63))

    def deadline_s(self) -> float:
        """Give the time that the client allows, 0 if it said nothing.

        Raises:
            MeshError: If `X-Request-Timeout` is not a number of seconds within bounds.
        """
        text = self.header(b"x-request-timeout")
        if not text:
            return 0.0
        longest_s = self.backend.limits.deadline_max_s
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= longest_s:
            raise invalid(
                f"X-Request-Timeout must be a number of seconds, at most {longest_s:g}.",
                param="X-Request-Timeout",
            )
        return seconds

    async def body(self) -> bytearray:
        """Read the body.

        Raises:
            MeshError: If it is too large, too slow, compressed, or cut off.
        """
        if self.header(b"content-encoding") not in {"", "identity"}:
            raise unsupported("Compressed bodies are not supported.", param="Content-Encoding")
        try:
            async with asyncio.timeout(self.backend.limits.body_s):
                return await self._read()
        except TimeoutError:
            raise invalid(
                f"The body did not come within {self.backend.limits.body_s:g} s."
            ) from None

    async def _read(self) -> bytearray:
        limit = self.backend.limits.body_bytes_max
        data = bytearray()
        size = 0
        more = True
        while more:
            message = await self.receive()
            if message["type"] != "http.request":
                raise MeshError(error_for("aborted", "The client went away."))
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(chunk)
            if size <= limit:
                self._count(len(chunk))
                data += chunk
            elif size > _DISCARD_FACTOR * limit:
                break
            # Else it is read on and forgotten: a client that is still writing hears no answer.
        if size > limit:
            raise MeshError(error_for("body_too_large", f"The body is larger than {limit} bytes."))
        return data

    def _count(self, size_bytes: int) -> None:
        if self.backend.bodies_bytes + size_bytes > self.backend.limits.bodies_bytes_max:
            raise MeshError(
                error_for("queue_full", "Too many large bodies at once.", retry_after_s=1.0)
            )
        self.backend.bodies_bytes += size_bytes
        self._body_bytes += size_bytes

    def forget_body(self) -> None:
        """Give the room that the body took to others."""
        self.backend.bodies_bytes -= self._body_bytes
        self._body_bytes = 0

    async def open(self, request: Request) -> Exchange:
        """Give the internal request to an orchestrator.

        Raises:
            MeshError: If the deadline is malformed, or no orchestrator can take the request.
        """
        exchange = await self.backend.orchestrators.open(
            request, request_id=self.request_id, deadline_s=self.deadline_s()
        )
        self.forget_body()
        return exchange

    def head(self, model: str) -> ReplyHead:
        """Give the identity of the reply."""
        return ReplyHead(request_id=self.request_id, created_s=int(time.time()), model=model)

    async def start(
        self,
        status: int,
        content_type: str,
        headers: Iterable[tuple[str, str]] = (),
        *,
        length: int | None = None,
    ) -> None:
        """Send the head of the answer; without a length it is streamed."""
        self.status = status
        fields = [
            (b"content-type", content_type.encode("latin-1")),
            (b"x-request-id", self.request_id.encode("latin-1")),
        ]
        if length is not None:
            fields.append((b"content-length", b"%d" % length))
        fields += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        self.backend.metrics.first_byte_s.labels(self.route).observe(
            time.perf_counter() - self.begun_s
        )

    async def piece(self, data: bytes, *, more: bool) -> None:
        """Send some of the body; returns once the client's socket took it or has room for it."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def answer(
        self,
        content_type: str,
        data: bytes,
        *,
        status: int = 200,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Send a whole answer."""
        await self.start(status, content_type, headers, length=len(data))
        await self.piece(data, more=False)

    async def refuse(
        self, status: Status, info: ErrorInfo, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Answer with an error in OpenAI's shape."""
        if info.param in self.names:
            info = msgspec.structs.replace(info, param=self.names[info.param])
        await self.answer(
            JSON,
            error_body(info, status, self.request_id),
            status=status.http,
            headers=(*retry_headers(status, info).items(), *headers),
        )
