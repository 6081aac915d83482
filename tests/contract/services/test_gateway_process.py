"""The gateway as a program: flags, readiness, SIGTERM, and what is left of it."""

import asyncio
import json
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.gateway.app import listen
from services.gateway.settings import Settings
from tests.helpers.e2e_mesh import until
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest, orchestrator_at
from tests.helpers.loopback import free_address

HELLO: Any = [{"role": "user", "content": "Hi"}]
ROOT = Path(__file__).parents[3]


async def _start(*flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", "--id", "gateway-p", *flags,
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
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
