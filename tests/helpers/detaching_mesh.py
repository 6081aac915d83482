"""Orchestrators that play scripts, and gateways that share one store of detachable requests."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from services.gateway.client import Detachable
from stagemesh.errors import MeshError
from stagemesh.media import Modality, Request
from tests.helpers.counted_requests import count_on, words
from tests.helpers.detaching_gateway import DetachingGateway, detaching_gateway, keep_texts
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest, orchestrator_at
from tests.helpers.loopback import free_address

__all__ = [
    "ASK", "ID", "Mesh", "begin", "detaching_mesh", "ends_with", "go_on", "read_lines",
    "text_until", "until_closed", "up_to",
]  # fmt: skip

ASK: Final = Request(model="echo", messages=(), modalities=(Modality.TEXT,))
ID: Final = "req_1"
ROOT: Final = Path(__file__).parents[2]


class Mesh:
    """Some orchestrators and gateways with one store."""

    def __init__(self, stack: AsyncExitStack, path: Path) -> None:
        self._stack = stack
        self.path = path
        self.fakes: list[FakeOrchestrator] = []
        self._names: list[str] = []

    async def orchestrator(self, script: Any) -> FakeOrchestrator:
        """Start an orchestrator."""
        fake, address = FakeOrchestrator(script=script), free_address()
        await self._stack.enter_async_context(orchestrator_at(address, fake))
        self.fakes.append(fake)
        self._names.append(f"o{len(self._names)}@{address}")
        return fake

    async def gateway(self, **options: Any) -> DetachingGateway:
        """Start a gateway that is linked with all orchestrators."""
        discovery = f"static:orchestrators={','.join(self._names)}"
        options.setdefault("links", len(self._names))
        return await self._stack.enter_async_context(
            detaching_gateway(self.path, discovery, **options)
        )

    async def program(self, what: str, *flags: str) -> asyncio.subprocess.Process:
        """Start a process that opens the request, or takes it over."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.helpers.detached_program", what,
            "--discovery", f"static:orchestrators={','.join(self._names)}",
            "--store", str(self.path), "--request-id", ID, *flags,
            cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._stack.push_async_callback(_reap, process)
        return process

    @property
    def asked(self) -> list[FakeRequest]:
        """All that was opened anywhere, by epoch."""
        return sorted((a for f in self.fakes for a in f.requests), key=lambda a: a.epoch)


async def _reap(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def read_lines(
    process: asyncio.subprocess.Process, *, until: int | None = None
) -> list[dict[str, Any]]:
    """Read what a process says, to its end or until it has so many tokens."""
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    tokens = 0
    async with asyncio.timeout(30):
        while (until is None or tokens < until) and (line := await process.stdout.readline()):
            lines.append(msgspec.json.decode(line))
            tokens += sum(row["units"] for row in lines[-1].get("rows", ()))
    return lines


@asynccontextmanager
async def detaching_mesh(folder: Path) -> AsyncIterator[Mesh]:
    """Give a mesh of nothing yet, for as long as the block lasts."""
    async with AsyncExitStack() as stack:
        yield Mesh(stack, folder / "requests.db")


async def begin(gateway: DetachingGateway, **options: Any) -> Detachable:
    """Open a request."""
    values: dict[str, Any] = {"request_id": ID, "detach_s": 30.0, "keep": keep_texts} | options
    return await gateway.detachables.open(ASK, **values)


async def go_on(gateway: DetachingGateway) -> Detachable:
    """Take the request over."""
    taken = await gateway.detachables.take_over(ID, keep=keep_texts)
    assert isinstance(taken, Detachable)
    return taken


async def text_until(detachable: Detachable, count: int) -> str:
    """Take what comes until there are so many tokens."""
    text = ""
    async with asyncio.timeout(10):
        while text != words(count):
            text += "".join(row.text for row in (await detachable.take()).rows)
    return text


async def ends_with(detachable: Detachable) -> str:
    """Wait until this gateway has it no more; give the reason."""
    with pytest.raises(MeshError) as caught:
        async with asyncio.timeout(10):
            while True:
                assert (await detachable.take()).terminal is None
    return caught.value.info.reason


async def until_closed(gateway: DetachingGateway) -> None:
    """Wait until a gateway has no request any more."""
    async with asyncio.timeout(5):
        while gateway.orchestrators.open_requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def up_to(after: int, then: Any = None) -> Any:
    """Give tokens up to one at the first epoch, then wait or act; go on at a later one."""

    async def play(asked: FakeRequest) -> None:
        if asked.epoch > 1:
            await count_on(asked)
            return
        while (at := asked.next()) < after:
            asked.text(f" w{at}", ids=[at])
        if then is not None:
            await asked.settled()
            await then(asked)

    return play
