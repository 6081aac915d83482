"""Orchestrators that play scripts, and gateways that share one store of detachable requests."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from services.gateway.client import Detachable, Ended
from stagemesh.errors import MeshError
from stagemesh.media import Modality, Request
from tests.helpers.counted_requests import TEXT, opened_at, until_then, words
from tests.helpers.detaching_gateway import DetachingGateway, detaching_gateway, keep_texts
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest, Script, orchestrator_at
from tests.helpers.loopback import free_address

__all__ = [
    "ASK", "ID", "Mesh", "begin", "detaching_mesh", "ends_with", "go_on", "read_lines", "received",
    "take_over", "text_until", "until_closed", "up_to",
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

    def cut(self, asked: FakeRequest) -> None:
        """Cut an orchestrator's link; it comes back, and serves nothing then."""
        next(fake for fake in self.fakes if asked in fake.requests).models.clear()
        asked.cut()

    @property
    def asked(self) -> list[FakeRequest]:
        """All that was opened anywhere, by epoch."""
        return opened_at(*self.fakes)


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


async def take_over(gateway: DetachingGateway, tenant: str = ASK.tenant) -> Detachable | Ended:
    """Take the request over, if it is not over."""
    return await gateway.detachables.take_over(ID, tenant=tenant, keep=keep_texts)


async def go_on(gateway: DetachingGateway) -> Detachable:
    """Take the request over, which is not over."""
    taken = await take_over(gateway)
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


def up_to(after: int, then: Callable[[FakeRequest], Any] = lambda asked: None) -> Script:
    """Give tokens up to one at the first epoch, then wait or act; go on at a later one."""
    return until_then(after, then)


async def received(detachable: Detachable, pos: int) -> None:
    """Wait until its gateway has so many tokens, committed or not."""
    journal = detachable._exchange.journal
    async with asyncio.timeout(10):
        while journal.expected(TEXT) < pos:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
