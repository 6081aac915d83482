"""The gateway as a program: flags, readiness, SIGTERM, and what is left of it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.gateway import app
from services.gateway.app import listen
from services.gateway.settings import Settings
from services.gateway.store import SqliteStore
from stagemesh.errors import MeshError
from stagemesh.media import Modality, Request
from tests.helpers.detaching_gateway import keep_texts
from tests.helpers.e2e_mesh import until
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest, orchestrator_at
from tests.helpers.loopback import free_address
from tests.helpers.running_gateway import running_gateway

HELLO: Any = [{"role": "user", "content": "Hi"}]
ROOT = Path(__file__).parents[3]


async def _start(
    *flags: str, environ: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", "--id", "gateway-p", *flags,
        cwd=ROOT, stderr=asyncio.subprocess.PIPE, env={**os.environ, **(environ or {})},
    )  # fmt: skip


async def test_sigterm_lets_a_stream_finish_and_leaves_nothing(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.text("before")
        await go_on.wait()
        asked.text(" after")
        asked.end()
        asked.complete()

    fake, link, http = FakeOrchestrator(script=play), free_address(), free_address()
    async with orchestrator_at(link, fake), httpx.AsyncClient(timeout=20) as client:
        process = await _start(
            "--discovery", f"static:orchestrators=o@{link}", "--http", http, "--payload",
            free_address(), "--drain-s", "10",
        )  # fmt: skip
        try:
            await fake.until(lambda: bool(fake.links), within_s=20)

            async def ready() -> int:
                return (await client.get(f"http://{http}/ready")).status_code

            await until(ready, lambda status: status == httpx.codes.OK, 20)
            text = ""
            async with client.stream(
                "POST",
                f"http://{http}/v1/chat/completions",
                json={"model": "echo", "messages": HELLO, "stream": True},
            ) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith('data: {"id'):
                        text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                    if text == "before" and not go_on.is_set():
                        process.send_signal(signal.SIGTERM)
                        go_on.set()
            assert text == "before after"
            _, said = await asyncio.wait_for(process.communicate(), 10)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    lines = [json.loads(line) for line in said.decode().splitlines()]
    assert {line["service"] for line in lines} == {"gateway"}
    assert "draining" in {line["message"] for line in lines}
    assert not {line["level"] for line in lines} & {"ERROR", "CRITICAL"}
    assert not any(name.startswith("stagemesh-gateway-p-") for name in _shared_memory())


def _shared_memory() -> list[str]:
    return [path.name for path in Path("/dev/shm").iterdir()]


async def test_what_is_set_wrong_is_told_in_a_line_with_status_2() -> None:
    process = await _start("--discovery", "nothing", "--http", free_address())
    _, said = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert b"discovery" in said
    process = await _start("--discovery", "file:/tmp/d.json", "--http", "0.0.0.0:8000")
    _, said = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert b"--insecure" in said


def test_an_address_is_taken_from_the_moment_it_is_opened() -> None:
    settings = Settings(
        id="gateway", http=free_address(), payload=free_address(), discovery="static:"
    )

    with closing(listen(settings)), pytest.raises(OSError, match="in use"):
        listen(settings)


async def test_a_gateway_that_is_stopped_leaves_what_may_outlive_it(tmp_path: Path) -> None:
    """It has ended nothing when its links end, and its store is closed after them."""
    path = tmp_path / "requests.db"

    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake, store=str(path), drain_s=0.2) as mesh:
        detachables = mesh.gateway.detachables
        assert detachables is not None
        detachable = await detachables.open(
            Request(model="echo", messages=(), modalities=(Modality.TEXT,)),
            request_id="req_1", detach_s=5.0, keep=keep_texts,
        )  # fmt: skip
        assert [row.text for row in (await detachable.take()).rows] == [" w0"]
        mesh.gateway.stop()
        with pytest.raises(MeshError, match="stopped"):
            await detachable.take()
        await asyncio.wait_for(fake.requests[0].detached.wait(), 5)
    assert not fake.requests[0].aborted.is_set()
    assert fake.fences == []
    store = await SqliteStore(path).open()
    row = await store.read("req_1")
    await store.close()
    assert row is not None
    assert (row.epoch, row.terminal, len(row.lanes)) == (1, None, 1)


async def test_without_a_store_nothing_outlives_a_gateway(tmp_path: Path) -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        assert mesh.gateway.detachables is None
    process = await _start(
        "--discovery", "static:orchestrators=o@127.0.0.1:1", "--http", free_address(), "--payload",
        free_address(), environ={"STAGEMESH_STORE": str(tmp_path / "missing" / "requests.db")},
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert b"missing/requests.db" in said


async def test_the_garbage_collector_is_told_before_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    class Idle:
        """A gateway that has nothing to do."""

        stop = print

        def __init__(self, *given: Any) -> None:
            steps.append("made")

        async def run(self) -> None:
            steps.append("run")

    monkeypatch.setattr(app, "Gateway", Idle)
    monkeypatch.setattr(app, "freeze_heap", lambda: steps.append("frozen"))
    nothing: Any = None
    await app.serve(nothing)
    assert steps == ["made", "frozen", "run"]
