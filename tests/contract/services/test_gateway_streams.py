"""Streams of the gateway: clients that go away, clients that do not read, and many at once."""

import asyncio
import json
import socket
from typing import Any

import pytest

from stagemesh.link.core import Row
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import Outcome, Terminal, error_for
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.running_gateway import RunningGateway, running_gateway

HELLO: Any = [{"role": "user", "content": "Hi"}]


def _post(body: dict[str, Any], path: str = "/v1/chat/completions") -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def _connect(mesh: RunningGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = mesh.gateway.address.split(":")
    return await asyncio.open_connection(host, int(port))


async def _inflight(mesh: RunningGateway) -> int:
    answer: int = (await mesh.http.get("/ready")).json()["inflight"]
    return answer


async def _wait_for_abort(asked: FakeRequest) -> None:
    await asked.aborted.wait()
    asked.terminal(Terminal(outcome=Outcome.CANCELLED, error=error_for("aborted")))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_before_the_first_output_is_an_abort_at_once(
    stream: bool,
) -> None:
    fake = FakeOrchestrator(script=_wait_for_abort)
    async with running_gateway(fake) as mesh:
        _, writer = await _connect(mesh)
        writer.write(_post({"model": "echo", "messages": HELLO, "stream": stream}))
        await fake.until(lambda: bool(fake.requests))
        assert await _inflight(mesh) == 1
        writer.close()
        async with asyncio.timeout(1):
            await fake.requests[0].aborted.wait()
        await writer.wait_closed()
        async with asyncio.timeout(1):
            while await _inflight(mesh):
                pass
        assert fake.fences == []


async def test_a_client_that_goes_while_it_is_served_is_an_abort_at_once() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text("w0")
        await _wait_for_abort(asked)

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh:
        reader, writer = await _connect(mesh)
        writer.write(_post({"model": "echo", "messages": HELLO, "stream": True}))
        await reader.readuntil(b'"w0"')
        writer.close()
        async with asyncio.timeout(1):
            await fake.requests[0].aborted.wait()
        await writer.wait_closed()


async def test_rows_after_an_abort_are_dropped_and_rows_after_the_end_are_fenced_once() -> None:
    async def play(asked: FakeRequest) -> None:
        await asked.aborted.wait()
        asked.text("late")
        asked.terminal(Terminal(outcome=Outcome.CANCELLED))
        for pos in (1, 2, 3):
            asked.raw(Row(asked.slot, lane_of(0, 0, Modality.TEXT), pos, 1, "later"))

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh:
        _, writer = await _connect(mesh)
        writer.write(_post({"model": "echo", "messages": HELLO, "stream": True}))
        await fake.until(lambda: bool(fake.requests))
        writer.close()
        await fake.until(lambda: bool(fake.fences))
        # Something that comes after the fences shows that there was only one.
        await mesh.http.post("/v1/chat/completions", json={"model": "echo", "messages": []})
        fake.script = _wait_for_abort
        _, other = await _connect(mesh)
        other.write(_post({"model": "echo", "messages": HELLO}))
        await fake.until(lambda: len(fake.requests) > 1)
        assert fake.fences == [fake.requests[0].slot]
        other.close()


async def test_a_gap_in_a_lane_ends_the_request_with_protocol_and_an_abort() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.raw(Row(asked.slot, lane_of(0, 0, Modality.TEXT), 5, 1, "hole"))
        await _wait_for_abort(asked)

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh:
        answer = await mesh.http.post(
            "/v1/chat/completions", json={"model": "echo", "messages": HELLO, "stream": True}
        )
        await fake.requests[0].aborted.wait()
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "protocol_error"


async def test_a_lane_that_was_not_asked_for_is_as_wrong_as_a_gap() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.raw(Row(asked.slot, lane_of(0, 1, Modality.TEXT), 0, 1, "whose?"))
        await _wait_for_abort(asked)

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        answer = await mesh.http.post(
            "/v1/chat/completions", json={"model": "echo", "messages": HELLO}
        )
    assert answer.json()["error"]["code"] == "protocol_error"


async def test_what_was_delivered_before_is_dropped_and_what_is_hidden_is_not_shown() -> None:
    async def play(asked: FakeRequest) -> None:
        lane = lane_of(0, 0, Modality.TEXT)
        asked.text("a")
        asked.raw(Row(asked.slot, lane, 0, 1, "a"))
        asked.raw(Row(asked.slot, lane_of(1, 0, Modality.TEXT), 0, 1, "secret", visible=False))
        asked.text("b")
        asked.end()
        asked.complete()

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        reply = await mesh.openai.chat.completions.create(model="echo", messages=HELLO)
        metrics = (await mesh.http.get("/metrics")).text
    assert reply.choices[0].message.content == "ab"
    assert "stagemesh_gateway_dropped_rows_total 1.0" in metrics


async def test_a_client_that_does_not_read_holds_up_itself_only() -> None:
    tokens = 60_000

    async def play(asked: FakeRequest) -> None:
        count = tokens if asked.request.label == "slow" else 200
        for token in range(count):
            asked.text(f" w{token}")
        asked.end()
        await asked.settled()
        asked.complete()

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake, send_buffer_bytes=8192) as mesh:
        host, port = mesh.gateway.address.split(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, (host, int(port)))
        request = _post({"model": "echo", "messages": HELLO, "stream": True})
        await loop.sock_sendall(slow, request.replace(b"Host:", b"X-Request-Id: slow\r\nHost:"))
        await fake.until(lambda: bool(fake.requests))
        for _ in range(3):
            reply = await mesh.openai.chat.completions.create(model="echo", messages=HELLO)
            assert reply.choices[0].message.content == "".join(f" w{n}" for n in range(200))
        waiting = fake.requests[0]
        assert waiting.held_units > tokens // 2
        reader, writer = await asyncio.open_connection(sock=slow, limit=2**26)
        text = (await reader.readuntil(b"data: [DONE]")).decode()
        writer.close()
    assert _streamed_text(text) == "".join(f" w{n}" for n in range(tokens))


def _streamed_text(raw: str) -> str:
    words = []
    for line in raw.split("\n"):
        if line.startswith('data: {"id'):
            words += [c["delta"].get("content", "") for c in json.loads(line[6:])["choices"]]
    return "".join(words)


async def test_two_hundred_streams_at_once_are_complete_in_order_and_end_once_each() -> None:
    streams, tokens = 200, 50

    async def play(asked: FakeRequest) -> None:
        for token in range(tokens):
            asked.text(f" w{token}")
            await asyncio.sleep(0)
        asked.end()
        asked.complete()

    async def ask(mesh: RunningGateway) -> tuple[str, int]:
        text, ends = "", 0
        stream = await mesh.openai.chat.completions.create(
            model="echo", messages=HELLO, stream=True
        )
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            ends += chunk.choices[0].finish_reason is not None
        return text, ends

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(ask(mesh)) for _ in range(streams)]
        assert await _inflight(mesh) == 0
    wanted = "".join(f" w{token}" for token in range(tokens))
    assert [task.result() for task in asking] == [(wanted, 1)] * streams


async def test_a_client_that_takes_nothing_for_slow_s_is_cut_off() -> None:
    async def play(asked: FakeRequest) -> None:
        for token in range(60_000):
            asked.text(f" w{token}")
        await _wait_for_abort(asked)

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake, send_buffer_bytes=8192, slow_s=0.5) as mesh:
        host, port = mesh.gateway.address.split(":")
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        stuck.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stuck, (host, int(port)))
        await loop.sock_sendall(stuck, _post({"model": "echo", "messages": HELLO, "stream": True}))
        await fake.until(lambda: bool(fake.requests))
        async with asyncio.timeout(10):
            await fake.requests[0].aborted.wait()
        stuck.close()
