"""Serves `/metrics` on a port of its own."""

import asyncio
from typing import Final

from stagemesh.settings import refuse_exposed, split_address
from stagemesh.telemetry.metrics import Metrics, metrics

__all__ = ["MetricsServer", "start_metrics"]

_HEAD_BYTES_MAX: Final = 16 * 1024
_TIMEOUT_S: Final = 5.0
_CONNECTIONS_MAX: Final = 64


class MetricsServer:
    """Answers `GET /metrics`, one answer a connection, until `close`."""

    def __init__(self, source: Metrics) -> None:
        self._source = source
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: If the address cannot be bound.
        """
        self._server = await asyncio.start_server(
            self._accept, host, port, limit=_HEAD_BYTES_MAX, reuse_port=False
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and cut what is open. Safe to call twice."""
        if self._server is None:
            return
        self._server.close()
        for writer in self._connections.values():
            writer.transport.abort()  # Its task sees that and ends.
        if self._connections:
            await asyncio.wait(list(self._connections))
        await self._server.wait_closed()
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            if len(self._connections) <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_TIMEOUT_S):
                    await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # A scraper that is slow, rude or gone is none of our concern.
        finally:
            writer.close()
            del self._connections[task]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, _, rest = head[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        status, content_type, body = "404 Not Found", "text/plain", b"not found\n"
        if method in {"GET", "HEAD"} and path == "/metrics":
            body, content_type = self._source.render(_header(head[1:], "accept"))
            status = "200 OK"
        fields = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(fields.encode("latin-1") + (b"" if method == "HEAD" else body))
        await writer.drain()


async def start_metrics(
    address: str, *, source: Metrics = metrics, insecure: bool = False
) -> MetricsServer:
    """Serve the metrics of this process on `HOST:PORT`.

    Raises:
        BadSettings: If the address is not loopback and `insecure` is false.
        OSError: If it cannot be bound.
    """
    refuse_exposed(address, secure=False, insecure=insecure)
    server = MetricsServer(source)
    await server.start(*split_address(address))
    return server


def _header(lines: list[str], name: str) -> str:
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""
