"""`Generate` over a real server, a real link and a worker that does what a test says."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc import aio

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import media_pb2, outcome_pb2, request_pb2
from stagemesh.ids import new_incarnation
from stagemesh.link.core import Row
from stagemesh.media import AUDIO_PCM, INLINE_BYTES_MAX, Body, Handle, Modality
from stagemesh.outcome import ErrorCode, Outcome
from stagemesh.payload import PayloadReader, PayloadStore
from stagemesh.rpc import error_of
from stagemesh.wire import handle_from_proto, request_terminal_from_proto
from tests.helpers.fake_worker import STOP, FakeWorker, Job, counting
from tests.helpers.orchestrator_mesh import MESH, with_deadline
from tests.helpers.running_orchestrator import (
    RunningOrchestrator,
    ask,
    running_orchestrator,
)

Response = orchestrator_service_pb2.GenerateResponse


class Answer:
    """Everything that one call gave."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.error: aio.AioRpcError | None = None

    @property
    def outputs(self) -> list[orchestrator_service_pb2.GeneratedOutput]:
        """All outputs, in order."""
        return [output for response in self.responses for output in response.outputs]

    @property
    def text(self) -> str:
        """All text, joined."""
        return "".join(output.text for output in self.outputs)

    @property
    def outcome(self) -> Outcome:
        """The outcome, which came once and in the last message."""
        assert [response.HasField("terminal") for response in self.responses] == [
            *[False] * (len(self.responses) - 1),
            True,
        ]
        return request_terminal_from_proto(self.responses[-1].terminal).outcome


async def collect(call: AsyncIterable[Response]) -> Answer:
    answer = Answer()
    try:
        async for response in call:
            answer.responses.append(response)
    except aio.AioRpcError as error:
        answer.error = error
    return answer


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


@pytest.fixture
async def orchestrator(worker: FakeWorker, tmp_path: Path) -> AsyncIterator[RunningOrchestrator]:
    async with running_orchestrator([worker], tmp_path) as orchestrator:
        await orchestrator.serving("echo")
        yield orchestrator


async def test_every_output_comes_once_in_order_and_then_one_terminal(tmp_path: Path) -> None:
    async with (
        FakeWorker(script=counting(500)) as worker,
        running_orchestrator([worker], tmp_path) as orchestrator,
    ):
        await orchestrator.serving("echo")
        answer = await collect(orchestrator.stub.Generate(ask()))

    assert answer.error is None
    assert answer.outcome is Outcome.COMPLETED
    assert answer.text == "".join(f" w{index}" for index in range(500))
    assert [output.pos for output in answer.outputs] == list(
        _starts(output.units for output in answer.outputs)
    )
    assert [output.HasField("end") for output in answer.outputs].count(True) == 1
    assert answer.outputs[-1].end.finish_reason == outcome_pb2.FINISH_REASON_STOP
    assert len(answer.responses) < 500, "outputs that wait are written together"


def _starts(units: Iterable[int]) -> Iterator[int]:
    start = 0
    for count in units:
        yield start
        start += count


async def test_the_request_id_comes_before_any_output(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    call = orchestrator.stub.Generate(ask())
    metadata = dict(await call.initial_metadata())
    job = await worker.job()

    assert metadata["x-request-id"] == job.submit.request_id
    call.cancel()


async def test_a_cancelled_call_aborts_its_attempt_and_leaves_nothing_open(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    call = orchestrator.stub.Generate(ask())
    job = await worker.job()
    job.say(" w0")
    await call.read()
    call.cancel()

    async with asyncio.timeout(5):
        assert await worker.aborted.get() == job.slot
    view = await orchestrator.until_done(job.submit.request_id)
    assert view.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
    assert orchestrator.metric('stagemesh_orchestrator_requests_open{model="echo"}') == 0


async def test_the_deadline_of_the_call_is_the_deadline_of_the_request(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    call = orchestrator.stub.Generate(ask(), timeout=1.0)
    job = await worker.job()
    answer = await collect(call)

    assert 0 < job.submit.deadline_left_s < 1.0
    assert answer.error is not None
    assert answer.error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(5):
        assert await worker.aborted.get() == job.slot


async def test_a_deadline_of_the_pipeline_ends_the_request_with_a_typed_terminal(
    worker: FakeWorker, tmp_path: Path
) -> None:
    async with running_orchestrator(
        [worker], tmp_path, mesh=with_deadline(MESH, "echo", 0.2)
    ) as orchestrator:
        await orchestrator.serving("echo")
        answer = await collect(orchestrator.stub.Generate(ask()))

    assert answer.outcome is Outcome.DEADLINE_EXCEEDED
    assert answer.error is not None
    assert answer.error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error_of(answer.error).stage == "thinker"


async def test_an_unknown_model_is_not_found(orchestrator: RunningOrchestrator) -> None:
    answer = await collect(orchestrator.stub.Generate(ask(model="nobody")))

    assert answer.outcome is Outcome.REJECTED
    assert answer.error is not None
    assert answer.error.code() is grpc.StatusCode.NOT_FOUND
    info = error_of(answer.error)
    assert (info.code, info.reason) == (ErrorCode.NOT_FOUND, "model_not_found")
    assert answer.responses[-1].terminal.error.reason == "model_not_found"


async def test_a_killed_worker_ends_its_requests_and_the_next_one_goes_elsewhere(
    tmp_path: Path,
) -> None:
    async with (
        FakeWorker("thinker-0") as first,
        FakeWorker("thinker-1", script=counting(3)) as second,
    ):
        async with running_orchestrator([first], tmp_path) as orchestrator:
            await orchestrator.serving("echo")
            responses = aiter(orchestrator.stub.Generate(ask()))
            job = await first.job()
            job.say(" w0")
            assert (await anext(responses)).outputs[0].text == " w0"
            await first.kill()
            answer = await collect(responses)

        assert answer.outcome is Outcome.FAILED
        assert answer.error is not None
        assert answer.error.code() is grpc.StatusCode.UNAVAILABLE
        info = error_of(answer.error)
        assert info.code is ErrorCode.REPLICA_LOST
        assert (info.stage, info.replica_id, info.retryable) == ("thinker", "thinker-0", True)

        async with running_orchestrator([first, second], tmp_path) as orchestrator:
            await orchestrator.serving("echo")
            answer = await collect(orchestrator.stub.Generate(ask()))
        assert answer.text == " w0 w1 w2"


async def test_what_an_engine_fails_with_reaches_the_client(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    call = orchestrator.stub.Generate(ask())
    job = await worker.job()
    job.end_with(
        outcome_pb2.OUTCOME_FAILED, outcome_pb2.ERROR_CODE_INVALID_ARGUMENT, "undecodable_audio"
    )
    answer = await collect(call)

    assert answer.error is not None
    assert answer.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(answer.error).reason == "undecodable_audio"


async def test_choices_are_told_apart_and_each_ends(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    request = ask()
    request.request.choices = 2
    call = orchestrator.stub.Generate(request)
    for name in ("a", "b"):
        job = await worker.job()
        job.say(f" {name}", end=STOP)
    answer = await collect(call)

    assert answer.outcome is Outcome.COMPLETED
    assert sorted((output.choice, output.text) for output in answer.outputs) == [
        (0, " a"),
        (1, " b"),
    ]


async def test_a_handle_from_a_client_is_refused_and_starts_nothing(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    request = ask()
    part = request.request.messages[0].parts.add()
    part.media.modality = media_pb2.MODALITY_AUDIO
    part.media.body.handle.handle_id = "h_stolen"
    answer = await collect(orchestrator.stub.Generate(request))

    assert answer.outcome is Outcome.REJECTED
    assert answer.error is not None
    assert answer.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(answer.error).param == "messages[0].parts[1]"
    assert worker.jobs.empty()


def holds(directory: Path, handle_id: str) -> bool:
    return any(handle_id in path.name for path in directory.iterdir())


@pytest.mark.parametrize("same_host", [True, False])
async def test_large_input_reaches_the_worker_as_a_handle_that_dies_with_the_call(
    orchestrator: RunningOrchestrator, worker: FakeWorker, tmp_path: Path, same_host: bool
) -> None:
    data = bytes(index % 251 for index in range(INLINE_BYTES_MAX + 1))
    request = ask()
    media = request.request.messages[0].parts.add().media
    media.modality = media_pb2.MODALITY_AUDIO
    media.body.inline = data
    call = orchestrator.stub.Generate(request)
    job = await worker.job()
    handle = job.submit.request.messages[0].parts[1].media.body.handle
    if not same_host:
        handle.probe = ""
    async with PayloadReader() as reader:
        assert bytes(await reader.get(handle_from_proto(handle))) == data
    assert holds(tmp_path, handle.handle_id)

    job.say(" heard", end=STOP)
    answer = await collect(call)
    assert answer.outcome is Outcome.COMPLETED
    assert not holds(tmp_path, handle.handle_id)


async def test_large_output_is_relayed_inline_in_bounded_pieces(
    orchestrator: RunningOrchestrator, worker: FakeWorker, tmp_path: Path
) -> None:
    data = bytes(index % 253 for index in range(700_000))
    call = orchestrator.stub.Generate(ask())
    job = await worker.job()
    store = PayloadStore(
        holder_id=worker.replica_id,
        incarnation=worker.incarnation,
        address=worker.address,
        directory=tmp_path,
        bytes_max=1 << 20,
        lease_s=60,
    )
    try:
        handle = store.put(data, job.submit.request_id)
        job.put(_row_by_handle(job, handle))
        answer = await collect(call)
    finally:
        store.close()

    assert answer.outcome is Outcome.COMPLETED
    assert [len(output.body.inline) for output in answer.outputs] == [262_144, 262_144, 175_712]
    assert b"".join(output.body.inline for output in answer.outputs) == data
    assert [output.more for output in answer.outputs] == [True, True, False]
    assert not any(output.body.HasField("handle") for output in answer.outputs)
    assert answer.outputs[-1].HasField("end")


async def test_bytes_that_cannot_be_fetched_fail_the_request(
    orchestrator: RunningOrchestrator, worker: FakeWorker, tmp_path: Path
) -> None:
    call = orchestrator.stub.Generate(ask())
    job = await worker.job()
    nowhere = Handle(
        handle_id="h_" + "0" * 32,
        request_id=job.submit.request_id,
        holder_id=worker.replica_id,
        incarnation=new_incarnation(),
        address=worker.address,
        size_bytes=100_000,
    )
    job.put(_row_by_handle(job, nowhere))
    answer = await collect(call)

    assert answer.outcome is Outcome.FAILED
    assert answer.error is not None
    assert error_of(answer.error).reason == "handle_lost"


def _row_by_handle(job: Job, handle: Handle) -> Row:
    body = Body(handle=handle, media_type=AUDIO_PCM, sample_rate_hz=24_000)
    return Row(job.slot, job.lanes[0], 0, 1, body=body, end=STOP)


async def test_a_second_stage_is_fed_by_the_first_and_both_reach_the_client(
    tmp_path: Path,
) -> None:
    audio = Body(inline=b"\1\2", media_type=AUDIO_PCM, sample_rate_hz=24_000)

    def talk(job: Job) -> None:
        job.put(Row(job.slot, job.lanes[0], 0, 1, body=audio, end=STOP))

    async with (
        FakeWorker("thinker-0", script=counting(100)) as thinker,
        FakeWorker(
            "talker-0",
            pool="talker",
            script=talk,
            modalities=(media_pb2.MODALITY_AUDIO,),
        ) as talker,
        running_orchestrator([thinker, talker], tmp_path) as orchestrator,
    ):
        await orchestrator.serving("talk")
        answer = await collect(orchestrator.stub.Generate(ask(model="talk")))
        heard = [talker.inputs.get_nowait() for _ in range(talker.inputs.qsize())]

    assert answer.outcome is Outcome.COMPLETED
    by_stage = {output.stage for output in answer.outputs}
    assert by_stage == {"thinker", "talker"}
    assert answer.text == "".join(f" w{index}" for index in range(100))
    assert answer.text.startswith("".join(row.text for row in heard))
    spoken = [output.body for output in answer.outputs if output.stage == "talker"]
    assert [body.inline for body in spoken] == [b"\1\2"]


async def test_a_burst_of_three_thousand_calls_on_one_channel_is_answered_whole(
    tmp_path: Path,
) -> None:
    async with (
        FakeWorker(script=counting(3)) as worker,
        running_orchestrator([worker], tmp_path) as orchestrator,
    ):
        await orchestrator.serving("echo")
        async with asyncio.timeout(90):
            answers = await asyncio.gather(
                *(collect(orchestrator.stub.Generate(ask())) for _ in range(3_000))
            )

    assert {str(answer.error) for answer in answers if answer.error is not None} == set()
    assert {answer.text for answer in answers} == {" w0 w1 w2"}
    assert {answer.outcome for answer in answers} == {Outcome.COMPLETED}


async def test_the_modality_of_each_output_is_told(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    call = orchestrator.stub.Generate(ask())
    (await worker.job()).say(" w0", end=STOP)
    answer = await collect(call)

    assert [output.modality for output in answer.outputs] == [int(Modality.TEXT)]


async def test_an_empty_message_list_names_its_field(orchestrator: RunningOrchestrator) -> None:
    request = orchestrator_service_pb2.GenerateRequest(request=request_pb2.Request(model="echo"))
    answer = await collect(orchestrator.stub.Generate(request))

    assert answer.error is not None
    assert answer.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(answer.error).param == "messages"
