import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from tests.helpers.e2e_mesh import E2eMesh, until
from tests.helpers.e2e_scripts import script, user, words
from tests.helpers.e2e_sse import Heard, hear

CHAT = "/v1/chat/completions"
GONE_S = 1.0
LONG = {"tokens": 100_000, "each_ms": 5}

TALK = {
    "model": "relay3",
    "modalities": ["text", "audio"],
    "audio": {"voice": "any", "format": "pcm16"},
}


class RawClient:
    """One connection that sends a chat and then does what a test wants."""

    def __init__(self, mesh: E2eMesh, *, buffer_bytes: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.setblocking(False)
        self._mesh = mesh
        self._loop = asyncio.get_running_loop()

    async def ask(self, body: dict[str, Any], *, path: str = CHAT, cut_bytes: int = 0) -> None:
        """Connect and send a request, but for its last bytes."""
        await self._loop.sock_connect(self.socket, ("127.0.0.1", self._mesh.http_port))
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._mesh.http}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        whole = head.encode() + data
        await self._loop.sock_sendall(self.socket, whole[: len(whole) - cut_bytes])

    async def read(self, size: int) -> bytes:
        """Read what is there."""
        async with asyncio.timeout(10):
            return await self._loop.sock_recv(self.socket, size)

    def reset(self) -> None:
        """Go without a word: the peer gets a reset."""
        self.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
        )
        self.socket.close()


Connect = Callable[..., RawClient]


@pytest.fixture
async def connect(synthetic: E2eMesh) -> AsyncIterator[Connect]:
    """Makes connections that end with the test."""
    clients: list[RawClient] = []

    def make(**how: int) -> RawClient:
        clients.append(RawClient(synthetic, **how))
        return clients[-1]

    yield make
    for client in clients:
        client.socket.close()


async def running(mesh: E2eMesh, attempts: int) -> None:
    """Wait until so many attempts run in the whole mesh."""

    async def count() -> float:
        counted = await mesh.metrics("orchestrator-0")
        return counted["stagemesh_orchestrator_attempts_inflight"]

    await until(count, lambda now: now == attempts, 5)


async def stopped(mesh: E2eMesh) -> None:
    """Wait until no request is open and every worker has let go of its attempts."""

    async def count() -> list[float]:
        counted = await mesh.metrics("orchestrator-0")
        return [counted[f"stagemesh_orchestrator_{what}"] for what in _OPEN]

    await until(count, lambda now: not any(now), 5)


_OPEN = ("attempts_inflight", "requests_open")


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize(
    ("body", "attempts"),
    [
        ({"model": "echo", "stream": True, "messages": user(tokens=5, first_ms=50_000)}, 1),
        ({"model": "echo", "stream": True, "messages": user(**LONG)}, 1),
        ({"model": "echo", "messages": user(**LONG)}, 1),
        ({"model": "echo", "stream": True, "messages": user(**LONG), "n": 4}, 4),
        ({**TALK, "stream": True, "messages": user(**LONG)}, 3),
        ({**TALK, "messages": user(**LONG)}, 3),
    ],
    ids=["before-first", "mid-stream", "whole", "choices", "three-stages", "three-stages-whole"],
)
async def test_every_stage_stops_within_a_second_of_a_disconnect(
    synthetic: E2eMesh, connect: Connect, body: dict[str, Any], attempts: int, how: str
) -> None:
    await synthetic.settled()
    client = connect()
    await client.ask(body)
    if body.get("stream") and "first_ms" not in str(body):
        assert (await client.read(100)).startswith(b"HTTP/1.1 200")
    await running(synthetic, attempts)
    begun_s = time.monotonic()
    if how == "reset":
        client.reset()
    elif how == "close":
        client.socket.close()
    else:
        client.socket.shutdown(socket.SHUT_WR)
    await stopped(synthetic)
    assert time.monotonic() - begun_s < GONE_S
    client.socket.close()
    await synthetic.settled()


async def test_a_picture_that_nobody_waits_for_is_not_painted_on(
    synthetic: E2eMesh, connect: Connect
) -> None:
    client = connect()
    prompt = 'x #synthetic {"painter": {"first_ms": 50000}}'
    await client.ask({"model": "paint", "prompt": prompt}, path="/v1/images/generations")
    await running(synthetic, 1)
    client.socket.close()
    await asyncio.wait_for(stopped(synthetic), GONE_S)
    await synthetic.settled()


async def test_a_client_that_goes_while_it_sends_its_body_leaves_nothing(
    synthetic: E2eMesh, connect: Connect
) -> None:
    clients = [connect() for _ in range(20)]
    for client in clients:
        await client.ask({"model": "echo", "messages": user(tokens=3)}, cut_bytes=5)

    async def calls() -> float:
        return (await synthetic.metrics("gateway-0"))["stagemesh_gateway_open_requests"]

    await until(calls, lambda now: now >= 21, 5)
    for client in clients:
        client.socket.close()
    await synthetic.settled(GONE_S + 1)


async def test_200_clients_that_leave_at_once_leave_nothing(
    synthetic: E2eMesh, connect: Connect
) -> None:
    clients = [connect() for _ in range(200)]
    for client in clients:
        await client.ask({"model": "echo", "stream": True, "messages": user(**LONG)})
    await running(synthetic, 200)
    for client in clients:
        client.socket.close()
    await synthetic.settled(3)


async def test_a_slow_reader_holds_back_itself_and_nobody_else(
    synthetic: E2eMesh, http: httpx.AsyncClient, connect: Connect
) -> None:
    tokens = 60_000
    slow = connect(buffer_bytes=4096)
    await slow.ask({"model": "echo", "stream": True, "messages": user(tokens=tokens, batch=32)})
    data = await slow.read(1024)

    async def others() -> float:
        begun_s = time.monotonic()
        heard = await asyncio.gather(
            *(hear(http, {"model": "echo", "messages": user(tokens=200)}) for _ in range(40))
        )
        for one in heard:
            one.complete(words(200))
        return time.monotonic() - begun_s

    async def at_1_kib_per_s() -> bytes:
        got = b""
        for _ in range(4):
            await asyncio.sleep(1)
            got += await slow.read(1024)
        return got

    reading = asyncio.create_task(at_1_kib_per_s())
    took_s = [await others() for _ in range(2)]
    data += await reading
    assert max(took_s) < 10
    shown = await synthetic.leftovers()
    assert shown.get("orchestrator-0 stagemesh_orchestrator_requests_open") == 1, shown
    held = sum(bytes_ for what, bytes_ in shown.items() if "held_bytes" in what)
    assert held <= 4 * 2**20
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
    while not data.endswith(b"0\r\n\r\n"):
        data += await slow.read(65_536)
    slow.socket.close()
    assert _text_of(data) == words(tokens)
    await synthetic.settled()


async def test_a_reader_that_stops_for_good_holds_its_windows_and_nothing_more(
    synthetic: E2eMesh, http: httpx.AsyncClient, connect: Connect
) -> None:
    stuck = [connect(buffer_bytes=4096) for _ in range(10)]
    much = user(tokens=60_000, batch=32)
    for client in stuck:
        await client.ask({"model": "echo", "stream": True, "messages": much})

    async def rows() -> float:
        return (await synthetic.metrics("orchestrator-0"))["stagemesh_orchestrator_outputs_total"]

    before = -1.0
    while (now := await rows()) != before:  # Credit stops them all, in the end.
        before = now
        await asyncio.sleep(0.1)
    (await hear(http, {"model": "echo", "messages": user(tokens=50)})).complete(words(50))
    shown = await synthetic.leftovers()
    assert shown["orchestrator-0 stagemesh_orchestrator_requests_open"] == len(stuck)
    for client in stuck:
        client.socket.close()
    await synthetic.settled(3)


async def test_a_reader_that_stops_while_much_is_made_is_ended_as_a_slow_consumer(
    synthetic: E2eMesh, http: httpx.AsyncClient, connect: Connect
) -> None:
    """Ten megabytes of audio overrun the attempt's outbox: that request ends, and no other."""
    ended = "stagemesh_orchestrator_requests_finished_total{SLOW_CONSUMER,talk,FAILED}"
    before = (await synthetic.metrics("orchestrator-0")).get(ended, 0.0)
    stuck = connect(buffer_bytes=4096)
    speech = {"model": "talk", "response_format": "pcm", "input": script(tokens=10_000)}
    await stuck.ask(speech, path="/v1/audio/speech")

    async def count() -> float:
        return (await synthetic.metrics("orchestrator-0")).get(ended, 0.0)

    await until(count, lambda now: now == before + 1, 10)
    await stopped(synthetic)
    (await hear(http, {"model": "echo", "messages": user(tokens=50)})).complete(words(50))
    stuck.socket.close()
    await synthetic.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_header_ends_the_request_and_names_the_stage(
    synthetic: E2eMesh, http: httpx.AsyncClient, stream: bool
) -> None:
    body = {"model": "talk", "messages": user(**LONG), "stream": stream}
    begun_s = time.monotonic()
    answer = await http.post(CHAT, json=body, headers={"x-request-timeout": "0.7"})
    assert 0.6 < time.monotonic() - begun_s < 2
    if stream:
        assert answer.status_code == 200
        error = json.loads(answer.text.strip().split("\n\n")[-1].removeprefix("data: "))["error"]
    else:
        assert answer.status_code == 504
        error = answer.json()["error"]
    assert (error["code"], error["type"], error["stage"]) == (
        "deadline_exceeded", "timeout_error", "thinker",
    )  # fmt: skip
    await synthetic.settled(2)


async def test_requests_one_after_the_other_on_one_connection_are_each_answered(
    synthetic: E2eMesh,
) -> None:
    """Pipelined: all are sent before the first is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", synthetic.http_port)
    body = json.dumps({"model": "echo", "messages": user(tokens=2)}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.replace("Host: x", f"Host: {synthetic.http}").encode() + body
    writer.write(request * 5)
    for _ in range(5):
        async with asyncio.timeout(10):
            fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            assert fields[0] == "http/1.1 200 ok"
            length = next(f for f in fields if f.startswith("content-length:"))
            answer = json.loads(await reader.readexactly(int(length.split(":")[1])))
        assert answer["choices"][0]["message"]["content"] == words(2)
    writer.close()


def _text_of(data: bytes) -> str:
    """Undo HTTP's chunks and the events; give the text."""
    _, _, rest = data.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    heard = Heard()
    for event in body.decode().split("\n\n"):
        if event:
            heard.take(event.removeprefix("data: "))
    assert heard.dones == 1
    return heard.text()
