"""Streamed input from a gateway's client to a worker, over two real orchestrators in turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from services.gateway.client import Exchange
from stagemesh.api.types.v1 import link_pb2
from stagemesh.discovery import Endpoint
from stagemesh.media import Modality, Request
from stagemesh.outcome import Outcome, Terminal
from tests.helpers.fake_worker import STOP, FakeWorker, Job
from tests.helpers.gateway_client import gateway_client
from tests.helpers.orchestrator_mesh import CONVERSING
from tests.helpers.running_orchestrator import RunningOrchestrator, running_orchestrator

LISTEN = Request(model="listen", messages=(), modalities=(Modality.TEXT,))


class Named:
    """A discovery that names what a test puts in."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[tuple[Endpoint, ...]] = asyncio.Queue()

    async def watch(self, group: str) -> AsyncIterator[tuple[Endpoint, ...]]:
        """See `Source`."""
        del group
        while True:
            yield await self.news.get()


class Gateway:
    """The client of a gateway, linked with orchestrators as a test starts them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._named = Named()
        self._endpoints: list[Endpoint] = []
        self.client = gateway_client(self._named)
        self._task = asyncio.create_task(self.client.run())
        stack.callback(self._task.cancel)

    async def start(self, worker: FakeWorker, directory: Path) -> RunningOrchestrator:
        """Start one orchestrator more, and wait until it is linked both ways."""
        orchestrator = await self._stack.enter_async_context(
            running_orchestrator([worker], directory, mesh=CONVERSING, orchestrators=2)
        )
        await orchestrator.serving("listen")
        name = f"o-{len(self._endpoints)}"
        self._endpoints.append(Endpoint(name, orchestrator.settings.link))
        self._named.news.put_nowait(tuple(self._endpoints))
        async with asyncio.timeout(10):
            while self.client.links < len(self._endpoints):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return orchestrator


async def all_of(exchange: Exchange) -> tuple[str, Terminal]:
    """Take everything that a client is told."""
    text = ""
    async with asyncio.timeout(20):
        while True:
            taken = await exchange.take()
            text += "".join(row.text for row in taken.rows)
            exchange.settle(taken.rows)
            if taken.terminal is not None:
                return text, taken.terminal


async def heard(worker: FakeWorker, job: Job, count: int) -> list[str]:
    """Give the next pieces that a worker is sent for an attempt."""
    async with asyncio.timeout(10):
        rows = [await worker.inputs.get() for _ in range(count)]
    assert {row.slot for row in rows} == {job.slot}
    return [row.text for row in rows]


async def test_a_conversation_goes_on_at_another_orchestrator_with_all_that_was_said(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(
            FakeWorker(contract=link_pb2.RESUME_CONTRACT_TOKENS)
        )
        gateway = Gateway(stack)
        first = await gateway.start(worker, tmp_path)
        exchange = await gateway.client.open(LISTEN, request_id="req_1", streamed=True)
        given = exchange.input
        assert given is not None
        for text in (" w0", " w1"):
            await given.room()
            given.append(text)
        job = await worker.job()
        assert await heard(worker, job, 2) == [" w0", " w1"]
        job.say(" w0")
        reading = asyncio.create_task(all_of(exchange))
        await gateway.start(worker, tmp_path)
        first.program.stop()
        job = await worker.job()
        assert await heard(worker, job, 2) == [" w0", " w1"]
        await given.room()
        given.append(" w2")
        given.close()
        assert await heard(worker, job, 1) == [" w2"]
        for at in range(job.pos, 3):
            job.say(f" w{at}", end=STOP if at == 2 else None)
        text, terminal = await reading
    assert text == " w0 w1 w2"
    assert terminal.outcome is Outcome.COMPLETED
