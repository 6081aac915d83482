"""Losses, over real links: of workers while they stream, and of the orchestrator itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from services.orchestrator.core.settings import CoreSettings
from stagemesh.api.types.v1 import link_pb2, media_pb2, outcome_pb2
from stagemesh.link.core import Journal, LaneJournal, Row, split_journal
from stagemesh.link.pump import journal_to_proto
from stagemesh.media import Body, Modality, lane_of
from tests.helpers.fake_gateway import FakeGateway
from tests.helpers.fake_worker import STOP, FakeWorker, Job, counting
from tests.helpers.running_orchestrator import (
    RunningOrchestrator,
    ask,
    gateway_of,
    running_orchestrator,
)

TOKENS, REPLAY = link_pb2.RESUME_CONTRACT_TOKENS, link_pb2.RESUME_CONTRACT_REPLAY
THOUGHT, SOUND = lane_of(0, 0, Modality.TEXT), lane_of(1, 0, Modality.AUDIO)
WORDS = [f" w{index}" for index in range(20)]


def stopping_after(tokens: int) -> Callable[[Job], None]:
    """Say some tokens of the answer, and then no more."""

    def script(job: Job) -> None:
        for index in range(job.pos, tokens):
            job.say(WORDS[index])

    return script


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def thinkers(stack: AsyncExitStack, *scripts: Callable[[Job], None]) -> list[FakeWorker]:
    """Start thinkers that go on by their tokens."""
    return [
        await stack.enter_async_context(
            FakeWorker(f"thinker-{index}", script=script, contract=TOKENS)
        )
        for index, script in enumerate(scripts)
    ]


async def running(
    stack: AsyncExitStack,
    workers: list[FakeWorker],
    directory: Path,
    model: str,
    *,
    orchestrators: int = 1,
) -> RunningOrchestrator:
    """Run an orchestrator that is linked with all these workers."""
    orchestrator = await stack.enter_async_context(
        running_orchestrator(workers, directory, orchestrators=orchestrators)
    )
    await orchestrator.serving(model)
    async with asyncio.timeout(10):
        while not all(one.connected for one in await orchestrator.replicas()):
            pass
    return orchestrator


async def test_a_caller_sees_one_stream_though_the_worker_is_killed(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    def script(job: Job) -> None:
        (counting(20) if job.pos else stopping_after(7))(job)

    workers = await thinkers(stack, script, script)
    orchestrator = await running(stack, workers, tmp_path, "echo")
    texts: list[str] = []
    terminals = []
    async for response in orchestrator.stub.Generate(ask(), timeout=20):
        texts += [output.text for output in response.outputs]
        if len(texts) == 7:
            await next(worker for worker in workers if worker.jobs.qsize()).kill()
        if response.HasField("terminal"):
            terminals.append(response.terminal)

    assert texts == WORDS
    [terminal] = terminals
    assert terminal.outcome == outcome_pb2.OUTCOME_COMPLETED
    assert terminal.usage.completion_tokens == 20


async def test_the_next_worker_gets_the_ids_that_the_gateway_has(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    workers = await thinkers(stack, stopping_after(7), stopping_after(7))
    orchestrator = await running(stack, workers, tmp_path, "echo")
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(ask().request)
    await gateway.until(lambda: len(gateway.texts(slot)) == 7)
    first, second = workers if workers[0].jobs.qsize() else workers[::-1]
    await first.kill()
    job = await second.job()

    [mark] = job.submit.resume
    assert (job.submit.attempt, job.submit.contract) == (2, TOKENS)
    assert (mark.lane, mark.pos, list(mark.token_ids)) == (THOUGHT, 7, list(range(7)))
    for index in range(7, 20):
        job.say(WORDS[index], end=STOP if index == 19 else None)
    await gateway.until(lambda: gateway.terminal(slot) is not None)
    terminal = gateway.terminal(slot)
    assert terminal is not None
    assert terminal.outcome == outcome_pb2.OUTCOME_COMPLETED
    assert "".join(gateway.texts(slot)) == "".join(WORDS)
    assert [one for row in gateway.rows for one in row.ids or []] == list(range(20))
    assert terminal.usage.completion_tokens == 20


async def test_a_talker_is_sent_everything_again_and_drops_what_was_given(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    workers = await thinkers(stack, stopping_after(3))
    talkers = [
        await stack.enter_async_context(
            FakeWorker(
                f"talker-{index}",
                pool="talker",
                modalities=(media_pb2.MODALITY_AUDIO,),
                contract=REPLAY,
            )
        )
        for index in range(2)
    ]
    orchestrator = await running(stack, [*workers, *talkers], tmp_path, "talk")
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(ask(model="talk").request)
    async with asyncio.timeout(10):
        done, pending = await asyncio.wait(
            [asyncio.create_task(talker.jobs.get()) for talker in talkers],
            return_when=asyncio.FIRST_COMPLETED,
        )
    for task in pending:
        task.cancel()
    job = done.pop().result()
    job.put(Row(job.slot, SOUND, 0, 160, body=Body(inline=b"x" * 320)))
    await gateway.until(lambda: any(row.lane == SOUND for row in gateway.rows))
    busy, other = talkers if talkers[0].links[0] is job.link else talkers[::-1]
    await busy.kill()
    again = await other.job()

    assert (again.pos, again.submit.contract) == (160, REPLAY)
    assert len(again.resume[SOUND].digest) == 16
    text = ""
    async with asyncio.timeout(10):
        while len(text) < len("".join(WORDS[:3])):
            text += (await other.inputs.get()).text
    assert text == "".join(WORDS[:3])
    await gateway.until(lambda: len(gateway.texts(slot)) >= 4)


async def test_what_a_worker_hands_back_goes_on_elsewhere(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    workers = await thinkers(stack, stopping_after(4), stopping_after(4))
    orchestrator = await running(stack, workers, tmp_path, "echo")
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(ask().request)
    await gateway.until(lambda: len(gateway.texts(slot)) == 4)
    first, second = workers if workers[0].jobs.qsize() else workers[::-1]
    first.report(link_pb2.PROCESS_STATE_DRAINING)
    (await first.job()).hand_back()
    job = await second.job()

    assert job.pos == 4
    job.say(WORDS[4], end=STOP)
    await gateway.until(lambda: gateway.terminal(slot) is not None)
    assert gateway.texts(slot) == WORDS[:5]


@pytest.mark.parametrize("in_parts", [False, True])
async def test_another_orchestrator_goes_on_from_the_gateways_journal(
    stack: AsyncExitStack, tmp_path: Path, in_parts: bool
) -> None:
    [worker] = workers = await thinkers(stack, stopping_after(6))
    first = await running(stack, workers, tmp_path, "echo")
    second = await running(stack, workers, tmp_path, "echo")
    old = await gateway_of(stack, first)
    slot = old.open(ask().request)
    job = await worker.job()
    await old.until(lambda: len(old.texts(slot)) == 6)
    journal = old.journal(slot)
    await old.leave()

    new = await gateway_of(stack, second)
    taken = take_over(new, job.submit.request_id, journal, in_parts=in_parts)
    again = await worker.job()
    async with asyncio.timeout(10):
        fence = await worker.fences.get()
    assert (fence.request_id, fence.epoch) == (job.submit.request_id, 2)
    assert (again.submit.epoch, again.submit.attempt, again.pos) == (2, 1, 6)
    assert list(again.resume[THOUGHT].token_ids) == list(range(6))
    again.say(WORDS[6], end=STOP)
    await new.until(lambda: new.terminal(taken) is not None)
    assert new.texts(taken) == [WORDS[6]]
    terminal = new.terminal(taken)
    assert terminal is not None
    assert terminal.usage.completion_tokens == 7


def take_over(gateway: FakeGateway, request_id: str, journal: Journal, *, in_parts: bool) -> int:
    """Open a request under its second epoch; its slot is returned."""
    if not in_parts:
        return gateway.open(ask().request, request_id=request_id, epoch=2, journal=journal)
    slot = gateway.open(ask().request, request_id=request_id, epoch=2, more=True)
    for piece in split_journal(journal, bytes_max=200):
        part = link_pb2.JournalPart(slot=slot, journal=journal_to_proto(piece))
        gateway.send(link_pb2.Frame(journal_part=part))
    gateway.send(link_pb2.Frame(go=link_pb2.Go(slot=slot)))
    return slot


async def test_a_request_of_which_all_was_given_is_answered_without_a_worker(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    [worker] = workers = await thinkers(stack, counting(3))
    orchestrator = await running(stack, workers, tmp_path, "echo")
    gateway = await gateway_of(stack, orchestrator)
    lane = LaneJournal(lane=THOUGHT, next=3, ids=[0, 1, 2], end=STOP, visible_pos=3)
    slot = gateway.open(ask().request, epoch=2, journal=Journal(lanes=[lane]))
    await gateway.until(lambda: gateway.terminal(slot) is not None)

    terminal = gateway.terminal(slot)
    assert terminal is not None
    assert (terminal.outcome, terminal.usage.completion_tokens) == (
        outcome_pb2.OUTCOME_COMPLETED,
        3,
    )
    assert worker.jobs.empty()


async def test_an_orchestrator_that_is_stopped_hands_its_requests_back(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    [worker] = workers = await thinkers(stack, stopping_after(2))
    orchestrator = await running(stack, workers, tmp_path, "echo", orchestrators=2)
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(ask().request)
    await gateway.until(lambda: len(gateway.texts(slot)) == 2)
    orchestrator.program.stop()
    await gateway.until(lambda: any(frame.HasField("hand_back") for frame in gateway.frames))

    [back] = [frame.hand_back for frame in gateway.frames if frame.HasField("hand_back")]
    assert back.slot == slot
    assert gateway.terminal(slot) is None
    async with asyncio.timeout(5):
        assert await worker.aborted.get() == (await worker.job()).slot


async def test_a_gateway_that_is_gone_has_a_while_to_come_back(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    [worker] = workers = await thinkers(stack, stopping_after(2))
    orchestrator = await running(stack, workers, tmp_path, "echo")
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(ask().request)
    await gateway.until(lambda: len(gateway.texts(slot)) == 2)
    job = await worker.job()
    left_s = asyncio.get_running_loop().time()
    await gateway.leave()
    async with asyncio.timeout(10):
        assert await worker.aborted.get() == job.slot
    waited_s = asyncio.get_running_loop().time() - left_s
    assert waited_s >= CoreSettings().orphan_s - 0.1
