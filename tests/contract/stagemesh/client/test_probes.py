import asyncio
import socket
from contextlib import aclosing

import pytest

from stagemesh.client import http_status, watch_health
from stagemesh.rpc import RunningServer, start_server


async def serve(address: str) -> RunningServer:
    return await start_server(address, register=lambda _: None, services=("s",))


async def test_each_change_of_health_is_told_and_the_end_too() -> None:
    server = await serve("127.0.0.1:0")
    seen = []
    async with asyncio.timeout(10), aclosing(watch_health(server.address, "s")) as changes:
        async for ready in changes:
            seen.append(ready)
            if len(seen) == 1:
                server.set_serving("s", True)
            elif len(seen) == 2:
                await server.stop(0)
    assert seen[:3] == [False, True, False]


async def test_a_server_that_is_not_up_yet_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    async with asyncio.timeout(10), aclosing(watch_health(address, "")) as changes:
        first = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        server = await serve(address)
        assert await first is True
    await server.stop(0)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", 503),
        (b"SSH-2.0-x\r\n", 0),
        (b"", 0),
    ],
)
async def test_the_status_is_the_first_line_s_number(answer: bytes, status: int) -> None:
    asked: list[bytes] = []

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await http_status(address, "/ready", timeout_s=5.0) == status
    expected = f"GET /ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    assert asked == [expected.encode()]


async def test_no_answer_has_the_status_0() -> None:
    assert await http_status("127.0.0.1:1", "/ready", timeout_s=1.0) == 0
