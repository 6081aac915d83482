"""The client of `Converse`, against a real orchestrator."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stagemesh.client import Conversation, ConversedOutput, converse
from stagemesh.errors import MeshError
from stagemesh.media import AUDIO_PCM, Modality, Request
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.fake_worker import STOP, FakeWorker
from tests.helpers.orchestrator_mesh import CONVERSING
from tests.helpers.running_orchestrator import RunningOrchestrator, running_orchestrator

LISTEN = Request(model="listen", messages=())


@pytest.fixture
async def listener() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


@pytest.fixture
async def mesh(listener: FakeWorker, tmp_path: Path) -> AsyncIterator[RunningOrchestrator]:
    async with running_orchestrator([listener], tmp_path, mesh=CONVERSING) as orchestrator:
        await orchestrator.serving("listen")
        yield orchestrator


async def all_of(conversation: Conversation) -> list[ConversedOutput]:
    async with asyncio.timeout(10):
        return [output async for output in conversation.outputs()]


async def test_a_conversation_gives_text_and_audio_and_gets_outputs_and_a_terminal(
    mesh: RunningOrchestrator, listener: FakeWorker
) -> None:
    async with converse(mesh.settings.grpc, LISTEN, timeout_s=20) as conversation:
        await conversation.append_text("so")
        await conversation.append_audio(b"abcd", channels=2)
        await conversation.end_segment()
        await conversation.close_input()
        await conversation.close_input()
        job = await listener.job()
        async with asyncio.timeout(10):
            pieces = [await listener.inputs.get() for _ in range(4)]
        job.say("so", end=STOP)
        outputs = await all_of(conversation)
    assert [row.text for row in pieces] == ["so", "", "", ""]
    body = pieces[1].body
    assert body is not None
    assert (body.inline, body.media_type, body.channels) == (b"abcd", AUDIO_PCM, 2)
    assert pieces[2].segment_end
    assert pieces[3].end is not None
    [output] = outputs
    assert (output.stage, output.modality, output.text) == ("listener", Modality.TEXT, "so")
    assert output.end is not None
    assert conversation.terminal is not None
    assert conversation.terminal.outcome is Outcome.COMPLETED


async def test_an_error_is_raised_once_the_outputs_are_read(mesh: RunningOrchestrator) -> None:
    async with converse(mesh.settings.grpc, Request(model="none", messages=())) as conversation:
        with pytest.raises(MeshError) as caught:
            await all_of(conversation)
        assert caught.value.info.code is ErrorCode.NOT_FOUND
        assert conversation.terminal is not None
        assert conversation.terminal.outcome is Outcome.REJECTED


async def test_leaving_the_block_aborts_the_request(
    mesh: RunningOrchestrator, listener: FakeWorker
) -> None:
    async with converse(mesh.settings.grpc, LISTEN) as conversation:
        await conversation.append_text("so")
        job = await listener.job()
    async with asyncio.timeout(10):
        assert await listener.aborted.get() == job.slot


async def test_a_client_may_cancel(mesh: RunningOrchestrator, listener: FakeWorker) -> None:
    async with converse(mesh.settings.grpc, LISTEN) as conversation:
        await conversation.append_text("so")
        job = await listener.job()
        conversation.cancel()
        async with asyncio.timeout(10):
            assert await listener.aborted.get() == job.slot
