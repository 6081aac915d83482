"""The HTTP door: hosts, origins, methods, bodies, and the errors that need no orchestrator."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from services.gateway.core.limits import EdgeLimits
from services.gateway.edges import BoundedProtocol
from services.gateway.edges.matrix import routes_page
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.running_gateway import RunningGateway, running_gateway

HELLO: Any = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"
ROOT = Path(__file__).parents[3]


def test_the_page_of_routes_is_fresh() -> None:
    page = ROOT / "docs/reference/routes.md"
    assert page.read_text(encoding="utf-8") == routes_page()


async def test_a_foreign_host_is_refused_and_our_own_names_are_not() -> None:
    async with running_gateway(FakeOrchestrator(), allowed_hosts=("api.example",)) as mesh:
        statuses = {
            host: (await mesh.http.get("/v1/models", headers={"Host": host})).status_code
            for host in ("evil.example", "localhost:1", "127.0.0.1", "[::1]:9", "API.example:80")
        }
        refused = await mesh.http.get("/v1/models", headers={"Host": "evil.example"})
    assert statuses == {
        "evil.example": 403, "localhost:1": 200, "127.0.0.1": 200, "[::1]:9": 200,
        "API.example:80": 200,
    }  # fmt: skip
    assert refused.json()["error"]["code"] == "host_not_allowed"


async def test_a_foreign_origin_is_refused() -> None:
    async with running_gateway(
        FakeOrchestrator(), allowed_origins=("https://app.example",)
    ) as mesh:
        own = f"http://{mesh.gateway.address}"
        origins = ("https://evil.example", "null", "http://localhost:1", own, "https://app.example")
        statuses = [
            (await mesh.http.get("/v1/models", headers={"Origin": origin})).status_code
            for origin in origins
        ]
    assert statuses == [403, 403, 403, 200, 200]


async def test_unknown_paths_and_wrong_methods_are_errors_in_openais_shape() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        missing = await mesh.http.get("/v1/nothing")
        wrong = await mesh.http.delete(CHAT)
        head = await mesh.http.head("/health")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    assert (head.status_code, head.content) == (200, b"")
    for answer in (missing, wrong, head):
        assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    "chunked", [pytest.param(False, id="of told length"), pytest.param(True, id="of no length")]
)
async def test_a_body_over_the_limit_is_413(chunked: bool) -> None:
    data = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "x" * 5000}]})

    async def pieces() -> Any:
        for at in range(0, len(data), 500):
            yield data[at : at + 500].encode()

    async with running_gateway(FakeOrchestrator(), limits=EdgeLimits(body_bytes_max=2000)) as mesh:
        answer = await mesh.http.post(CHAT, content=pieces() if chunked else data)
        after = await mesh.http.post(CHAT, json={"model": "echo", "messages": HELLO})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert after.status_code == 200


async def test_bodies_have_one_budget_together_and_give_it_back() -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "x" * 3000}]}
    limits = EdgeLimits(bodies_bytes_max=4000)
    async with running_gateway(FakeOrchestrator(), limits=limits) as mesh:
        held = _unfinished(mesh, json.dumps(body).encode()[:-1])
        writer = await held
        async with asyncio.timeout(5):
            while (await mesh.http.post(CHAT, json=body)).status_code != 429:
                pass
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(5):
            while (await mesh.http.post(CHAT, json=body)).status_code != 200:
                pass


async def _unfinished(mesh: RunningGateway, data: bytes) -> asyncio.StreamWriter:
    host, port = mesh.gateway.address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data) + 1}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    return writer


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with running_gateway(FakeOrchestrator(), limits=EdgeLimits(body_s=0.1)) as mesh:
        host, port = mesh.gateway.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{{".encode()
        )
        status = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
    assert b" 400 " in status


async def test_requests_over_the_limit_are_refused_as_overloaded() -> None:
    async def play(asked: FakeRequest) -> None:
        await asked.aborted.wait()
        asked.end()
        asked.complete()

    fake = FakeOrchestrator(script=play)
    async with (
        running_gateway(fake, limits=EdgeLimits(requests_max=1)) as mesh,
        asyncio.TaskGroup() as group,
    ):
        body = {"model": "echo", "messages": HELLO}
        first = group.create_task(mesh.http.post(CHAT, json=body))
        await fake.until(lambda: bool(fake.requests))
        second = await mesh.http.post(CHAT, json=body)
        probe = await mesh.http.get("/health")
        fake.requests[0].aborted.set()
        assert (await first).status_code == 200
    assert (second.status_code, second.json()["error"]["code"]) == (429, "queue_full")
    assert second.headers["x-stagemesh-not-admitted"] == "1"
    assert probe.status_code == 200


async def test_compressed_bodies_are_refused() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        answer = await mesh.http.post(CHAT, content=b"{}", headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Content-Encoding")


async def test_a_request_that_outgrows_its_frame_is_413() -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "x" * (4 << 20)}]}
    fake = FakeOrchestrator()
    async with running_gateway(fake) as mesh:
        answer = await mesh.http.post(CHAT, json=body)
        small = await mesh.http.post(CHAT, json={"model": "echo", "messages": HELLO})
    assert answer.status_code == 413
    assert answer.json()["error"]["param"] == "messages"
    assert (small.status_code, len(fake.requests)) == (200, 1)


async def test_metrics_count_requests_by_route_and_status() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        await mesh.http.post(CHAT, json={"model": "echo", "messages": HELLO, "stream": True})
        await mesh.http.post(CHAT, json={"model": "echo"})
        await mesh.http.get("/no/such/path")
        text = (await mesh.http.get("/metrics")).text
    counted = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in text.splitlines()}
    requests = "stagemesh_gateway_http_requests_total"
    assert counted[f'{requests}{{route="{CHAT}",status="200"}}'] == "1.0"
    assert counted[f'{requests}{{route="{CHAT}",status="400"}}'] == "1.0"
    assert counted[f'{requests}{{route="other",status="404"}}'] == "1.0"
    assert counted["stagemesh_gateway_open_streams"] == "0.0"
    assert counted["stagemesh_gateway_stream_rows_total"] == "4.0"


async def test_a_form_that_is_no_form_is_the_clients_mistake() -> None:
    path = "/v1/audio/transcriptions"
    wav: Any = {"file": ("a.wav", b"RIFF")}
    async with running_gateway(FakeOrchestrator()) as mesh:
        answers = [
            await mesh.http.post(path, json={"model": "echo"}),
            await mesh.http.post(path, data={"model": "echo"}, files={"other": ("a", b"x")}),
            await mesh.http.post(path, data={"model": "echo"}, files={"file": ("a.wav", b"")}),
            await mesh.http.post(path, data={"model": "echo", "best": "1"}, files=wav),
            await mesh.http.post(path, data={"model": "echo", "temperature": "x"}, files=wav),
            await mesh.http.post(
                path, content=b"--x", headers={"Content-Type": "multipart/form-data; boundary=y"}
            ),
            await mesh.http.post(
                path, content=b"--x", headers={"Content-Type": "multipart/form-data"}
            ),
        ]
    found = [(answer.status_code, answer.json()["error"]["param"]) for answer in answers]
    assert found == [
        (400, "Content-Type"), (400, "other"), (400, "file"), (400, "best"), (400, "temperature"),
        (400, None), (400, None),
    ]  # fmt: skip


async def test_a_head_over_the_limit_is_refused() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        headers = {f"x-{at}": "v" * 1000 for at in range(70)}
        answer = await mesh.http.get("/v1/models", headers=headers)
        after = await mesh.http.get("/v1/models")
    assert (answer.status_code, after.status_code) == (400, 200)


async def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_s", 0.1)
    async with running_gateway(FakeOrchestrator()) as mesh:
        host, port = mesh.gateway.address.split(":")
        for begun in (b"", b"GET /health HTTP/1.1\r\nHo"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(begun)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()


async def test_a_slow_next_head_does_not_end_the_answer_before_it(monkeypatch: Any) -> None:
    given_up = asyncio.Event()

    def give_up(protocol: BoundedProtocol) -> None:
        original(protocol)
        given_up.set()

    original = BoundedProtocol._give_up
    monkeypatch.setattr(BoundedProtocol, "_give_up", give_up)
    monkeypatch.setattr(BoundedProtocol, "head_s", 0.1)

    async def play(asked: FakeRequest) -> None:
        asked.text("a")
        await given_up.wait()
        asked.end()
        asked.complete()

    body = json.dumps({"model": "echo", "messages": HELLO, "stream": True})
    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        host, port = mesh.gateway.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(f"{head}{body}GET /hea".encode())
        assert b"[DONE]" in await asyncio.wait_for(reader.readuntil(b"[DONE]"), 5)
        writer.close()
