"""A `Generate` client that stops reading, over a real server and a real link."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.servicer.generate import Generation
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from tests.helpers.fake_worker import FakeWorker
from tests.helpers.orchestrator_mesh import MESH, with_deadline
from tests.helpers.running_orchestrator import ask, running_orchestrator

Response = orchestrator_service_pb2.GenerateResponse


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


async def test_a_client_that_stops_reading_does_not_keep_its_call_for_ever(
    worker: FakeWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request ends at its deadline; whoever serves the call lets go soon after."""
    monkeypatch.setattr("services.orchestrator.servicer.answers.LEFTOVER_S", 0.2)
    over = asyncio.Event()
    run = Generation.run

    async def watched(*arguments: Any) -> AsyncIterator[Response]:
        try:
            async for response in run(*arguments):
                yield response
        finally:
            over.set()

    monkeypatch.setattr(Generation, "run", watched)
    async with running_orchestrator(
        [worker], tmp_path, mesh=with_deadline(MESH, "echo", 1.0)
    ) as orchestrator:
        await orchestrator.serving("echo")
        call = orchestrator.stub.Generate(ask())
        job = await worker.job()
        job.say("first")
        await call.read()
        for _ in range(12):  # More than HTTP/2 lets wait for a reader.
            job.say("x" * 3_000_000)
        async with asyncio.timeout(10):
            await over.wait()
        call.cancel()
