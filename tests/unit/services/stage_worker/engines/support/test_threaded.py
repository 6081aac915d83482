import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

import pytest

from services.stage_worker.engines.base import (
    Capabilities,
    EngineConfig,
    ModelCard,
    Piece,
    ResumeContract,
    TextInput,
    Work,
)
from services.stage_worker.engines.support.job import Job
from services.stage_worker.engines.support.threaded import Give, ThreadedEngine
from stagemesh.errors import MeshError, invalid
from stagemesh.media import Modality
from stagemesh.outcome import End, ErrorCode, FinishReason, Usage
from tests.helpers.engines import Collector, collecting

END = End(finish_reason=FinishReason.STOP)
CONFIG = EngineConfig(pool="pool", replica_id="replica-0", model="")


class Counting(ThreadedEngine):
    """Gives each job as many numbers as its text says, one a step, if it may: see `allow`."""

    def __init__(self, *, threads: int = 1, batch_max: int = 1, held: bool = False) -> None:
        super().__init__(CONFIG, slots=99, threads=threads, batch_max=batch_max)
        self.permits = threading.Semaphore(0 if held else 1_000_000)
        self.batches: list[int] = []

    @property
    def capabilities(self) -> Capabilities:
        """Text in, text out."""
        text = frozenset({Modality.TEXT})
        return Capabilities(
            input_modalities=text,
            output_modalities=text,
            stream_input=True,
            stream_output=True,
            resume_contract=ResumeContract.NONE,
            deterministic=True,
            slots=self.slots,
        )

    def load_model(self, progress: Callable[[str], None]) -> ModelCard:
        """Load nothing."""
        progress("loading")
        return ModelCard(model="counting")

    def accept(self, work: Work) -> None:
        """Refuse what says so."""
        if text_of(work) == "refused":
            raise invalid("refused")

    def batch_key(self, work: Work) -> Hashable:
        """Let numbers of as many digits run together."""
        return len(text_of(work))

    def run(self, jobs: list[Job], give: Give) -> None:
        """Count, or fail as the text says."""
        self.batches.append(len(jobs))
        text = text_of(jobs[0].work)
        if text == "broken":
            raise RuntimeError("no such luck")
        if text == "unfit":
            raise invalid("unfit", param="text")
        if text == "endless":
            return
        counts = {job: int(text_of(job.work)) for job in jobs}
        for step in range(max(counts.values())):
            assert self.permits.acquire(timeout=10)
            give([self.piece(job, step, counts[job]) for job in jobs if step < counts[job]])
            if all(job.ended for job in jobs):
                return

    def allow(self, steps: int = 1_000_000) -> None:
        """Let some more steps happen."""
        self.permits.release(steps)

    def piece(self, job: Job, step: int, count: int) -> Piece:
        """Make what one step gives for one job."""
        job.usage = Usage(completion_tokens=step + 1)
        end = END if step == count - 1 else None
        return Piece(attempt=job.work.attempt, units=1, text=f" {step}", end=end)


class Echoing(Counting):
    """Gives back what is appended, as it comes."""

    def run(self, jobs: list[Job], give: Give) -> None:
        """Give back each input."""
        (job,) = jobs
        for given in job.inputs():
            assert isinstance(given, TextInput)
            assert self.permits.acquire(timeout=10)
            give([Piece(attempt=job.work.attempt, text=given.text)])
            if job.ended:
                return
        give([Piece(attempt=job.work.attempt, end=END)])


def text_of(work: Work) -> str:
    assert isinstance(work.input, TextInput)
    return work.input.text


def count(number: int) -> TextInput:
    return TextInput(text=str(number))


@asynccontextmanager
async def running(engine: Counting) -> AsyncIterator[tuple[Counting, Collector]]:
    async with collecting(engine) as found:
        yield engine, found


async def test_an_attempt_gives_its_pieces_in_order_and_ends_once() -> None:
    async with running(Counting()) as (engine, found):
        number = await found.run(count(5))
        assert found.text(number) == " 0 1 2 3 4"
        assert found.end(number) == END
        report = engine.load_report()
        assert (report.running, report.waiting) == (0, 0)
        assert report.steps == 5


async def test_waiting_attempts_of_one_key_run_together() -> None:
    async with running(Counting(batch_max=3, held=True)) as (engine, found):
        blocker = found.start(count(1000))
        engine.allow(1)
        await found.until(lambda: bool(found.pieces[blocker]))
        numbers = [found.start(count(number)) for number in (1, 10, 2, 3, 4)]
        engine.allow()
        await found.until_over(*numbers)
        assert engine.batches == [1, 3, 1, 1]
        assert [found.text(number).count(" ") for number in numbers] == [1, 10, 2, 3, 4]


async def test_a_waiting_attempt_is_aborted_at_once() -> None:
    async with running(Counting(held=True)) as (engine, found):
        engine.allow(1)
        first, second = found.start(count(2)), found.start(count(10))
        await found.until(lambda: bool(found.pieces[first]))
        engine.abort(second)
        await found.until_over(second)
        assert found.error(second).code is ErrorCode.ABORTED
        assert found.last(first) is None
        engine.allow()
        await found.until_over(first)
        assert found.end(first) == END


async def test_a_running_attempt_is_aborted_at_its_next_step_with_its_usage() -> None:
    async with running(Counting(held=True)) as (engine, found):
        engine.allow(3)
        number = found.start(count(1000))
        await found.until(lambda: len(found.pieces[number]) == 3)
        engine.abort(number)
        engine.abort(number)
        engine.allow(1)
        await found.until_over(number)
        assert found.text(number) == " 0 1 2"
        last = found.last(number)
        assert last is not None
        assert last.error is not None
        assert last.error.code is ErrorCode.ABORTED
        assert last.end is not None
        assert last.end.finish_reason is FinishReason.ABORT
        assert last.end.usage.completion_tokens == 4
        assert engine.load_report().running == 0


async def test_one_aborted_of_a_batch_ends_at_the_next_step_and_the_others_go_on() -> None:
    async with running(Counting(batch_max=2, held=True)) as (engine, found):
        engine.allow(1)
        blocker = found.start(count(2))
        await found.until(lambda: bool(found.pieces[blocker]))
        first, second = found.start(count(3)), found.start(count(5))
        engine.allow(2)
        await found.until(lambda: bool(found.pieces[first]))
        engine.abort(first)
        engine.allow(1)
        await found.until_over(first)
        assert found.error(first).code is ErrorCode.ABORTED
        assert found.last(second) is None
        engine.allow()
        await found.until_over(second)
        assert engine.batches == [1, 2]
        assert found.text(second) == " 0 1 2 3 4"


async def test_what_a_run_raises_ends_its_attempts_with_the_cause() -> None:
    async with running(Counting()) as (_, found):
        unfit = await found.run(TextInput(text="unfit"))
        broken = await found.run(TextInput(text="broken"))
        endless = await found.run(TextInput(text="endless"))
        assert found.error(unfit).code is ErrorCode.INVALID_ARGUMENT
        assert found.error(unfit).param == "text"
        assert found.error(broken).code is ErrorCode.ENGINE_ERROR
        assert "no such luck" in found.error(broken).message
        assert found.error(endless).code is ErrorCode.ENGINE_ERROR
        await found.run(count(2))


async def test_refused_work_leaves_nothing_behind() -> None:
    async with running(Counting()) as (engine, found):
        with pytest.raises(MeshError):
            found.start(TextInput(text="refused"))
        assert engine.load_report().running == engine.load_report().waiting == 0


async def test_a_streamed_attempt_waits_for_its_input_and_ends_with_it() -> None:
    async with running(Echoing(threads=2)) as (engine, found):
        number = found.start(TextInput(text="a"), streamed=True)
        await found.until(lambda: found.text(number) == "a")
        engine.append(number, TextInput(text="b"))
        await found.until(lambda: found.text(number) == "ab")
        other = await found.run(TextInput(text="c"))
        assert found.text(other) == "c"
        assert found.last(number) is None
        engine.close_input(number)
        await found.until_over(number)
        engine.append(number, TextInput(text="late"))
        engine.close_input(number)
        assert found.text(number) == "ab"


async def test_an_input_counts_as_taken_when_the_thread_takes_it() -> None:
    async with running(Echoing(held=True)) as (engine, found):
        number = found.start(TextInput(text="a"), streamed=True)
        for text in ("b", "c", "d"):
            engine.append(number, TextInput(text=text))
        engine.allow(3)
        await found.until(lambda: found.text(number) == "abc")
        assert sum(piece.taken for piece in found.pieces[number]) == 2
        engine.allow()
        await found.until(lambda: found.text(number) == "abcd")
        assert sum(piece.taken for piece in found.pieces[number]) == 3


async def test_a_streamed_attempt_that_waits_is_aborted() -> None:
    async with running(Echoing()) as (engine, found):
        number = found.start(TextInput(text="a"), streamed=True)
        await found.until(lambda: found.text(number) == "a")
        engine.abort(number)
        await found.until_over(number)
        assert found.error(number).code is ErrorCode.ABORTED


async def test_closing_aborts_what_runs_and_what_waits() -> None:
    async with running(Echoing()) as (_, found):
        numbers = [found.start(TextInput(text="a"), streamed=True) for _ in range(3)]
        await found.until(lambda: found.text(numbers[0]) == "a")
    assert [found.error(number).code for number in numbers] == [ErrorCode.ABORTED] * 3


async def test_aborts_at_any_moment_leave_every_attempt_with_exactly_one_end() -> None:
    rng = random.Random(20261129)
    async with running(Counting(threads=3, batch_max=4)) as (engine, found):
        numbers: list[int] = []
        for _ in range(400):
            numbers.append(found.start(count(rng.choice([1, 2, 30]))))
            if rng.random() < 0.5:
                engine.abort(rng.choice(numbers))
            if rng.random() < 0.2:
                await asyncio.sleep(0)
        await found.until_over(*numbers)
        assert engine.load_report().running == engine.load_report().waiting == 0
        for number in numbers:
            last = found.last(number)
            assert last is not None
            if last.error is None:
                want = int(found.text(number).split()[-1]) + 1
                assert len(found.pieces[number]) == want
