"""An engine whose model computes in threads of this process.

A subclass loads a model and runs batches of jobs; queueing, batching, aborts, ends and errors are
done here, once for all such engines.
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor

from services.stage_worker.engines.base import (
    Capabilities,
    EngineConfig,
    EngineInput,
    LoadReport,
    ModelCard,
    Piece,
    Work,
)
from services.stage_worker.engines.support.job import Job
from services.stage_worker.engines.support.steps import Steps
from stagemesh.control import Answer, Call
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["Give", "ThreadedEngine"]

Give = Callable[[Sequence[Piece]], None]

_log = logging.getLogger(__name__)


class ThreadedEngine(ABC):
    """Runs jobs in `threads` compute threads; jobs of one `batch_key` run together."""

    def __init__(
        self, config: EngineConfig, *, slots: int, threads: int = 1, batch_max: int = 1
    ) -> None:
        self.config = config
        self.slots = slots
        self._batch_max = batch_max
        self._steps = Steps()
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        self._waiting: deque[Job] = deque()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=config.pool)

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the engine can do; valid after `load`."""

    @abstractmethod
    def load_model(self, progress: Callable[[str], None]) -> ModelCard:
        """Load the model and warm it up; runs in a compute thread."""

    @abstractmethod
    def run(self, jobs: list[Job], give: Give) -> None:
        """Run a batch in a compute thread.

        It calls `give` after each step, with what the step made, even if that is nothing: this is
        where aborted jobs end. It returns soon once every job has `ended`. Each other job's last
        piece has its `end` (engines here give one modality). A `MeshError` fails all jobs that have
        not ended with its cause, any other exception fails them with `ENGINE_ERROR`. The inputs
        that a job has taken are told with the next step.
        """

    def accept(self, work: Work) -> None:
        """Refuse work at once, by raising `MeshError`, where its values alone show the fault."""
        del work

    def batch_key(self, work: Work) -> Hashable:
        """Tell which works may run in one batch; by default none. May raise `MeshError` too."""
        return work.attempt

    async def load(self, progress: Callable[[str], None]) -> ModelCard:
        """Load the model in a compute thread."""
        self._steps.bind()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.load_model, progress)

    def submit(self, work: Work) -> None:
        """Queue an attempt for the compute threads."""
        self.accept(work)
        job = Job(work, self.batch_key(work))
        with self._lock:
            self._jobs[work.attempt] = job
            self._waiting.append(job)
        self._pool.submit(self._serve)

    def append(self, attempt: int, piece: EngineInput) -> None:
        """Give a streamed attempt its next input."""
        if job := self._jobs.get(attempt):
            job.append(piece)

    def close_input(self, attempt: int) -> None:
        """Tell a streamed attempt that its input is complete."""
        if job := self._jobs.get(attempt):
            job.close_input()

    def abort(self, attempt: int) -> None:
        """Stop an attempt: at once if it waits, else at the next step."""
        with self._lock:
            job = self._jobs.get(attempt)
            if job is None:
                return
            job.abort()
            waiting = job in self._waiting
            if waiting:
                self._waiting.remove(job)
        if waiting:
            self._give([job], [])

    def outputs(self) -> AsyncIterator[list[Piece]]:
        """Yield what the compute threads made."""
        return self._steps.read()

    async def control(self, call: Call) -> Answer:
        """Never called: no such engine declares a control call."""
        raise AssertionError(f"no {type(call).__name__}")

    def load_report(self) -> LoadReport:
        """Tell how many attempts run and wait."""
        with self._lock:
            waiting = len(self._waiting)
            running = len(self._jobs) - waiting
        return LoadReport(running=running, waiting=waiting, steps=self._steps.count)

    async def close(self) -> None:
        """Abort everything and wait for the compute threads."""
        for attempt in list(self._jobs):
            self.abort(attempt)
        await asyncio.to_thread(self._pool.shutdown)
        self._steps.close()

    def _serve(self) -> None:
        """Run one batch, if one waits: there is a call for each job, but one may take several."""
        jobs = self._take()
        if not jobs:
            return

        def give(pieces: Sequence[Piece]) -> None:
            self._give(jobs, pieces)

        try:
            self.run(jobs, give)
            error = error_for("engine_error", "the engine ended without a result")
        except MeshError as refused:
            error = refused.info
        except Exception as broken:  # A model's code may raise anything; only its attempts fail.
            ids = [job.work.request_id for job in jobs]
            _log.exception("a batch failed", extra={"request_ids": ids})
            message = f"the engine failed: {type(broken).__name__}: {broken}"[:500]
            error = error_for("engine_error", message)
        if left := [job for job in jobs if not job.ended]:
            self._give(left, [Piece(attempt=job.work.attempt, error=error) for job in left])

    def _take(self) -> list[Job]:
        with self._lock:
            batch: list[Job] = []
            for job in list(self._waiting):
                if len(batch) == self._batch_max:
                    break
                if not batch or job.key == batch[0].key:
                    self._waiting.remove(job)
                    batch.append(job)
            return batch

    def _give(self, jobs: list[Job], pieces: Sequence[Piece]) -> None:
        """Put out one step of a batch; only one thread does so for a job at a time.

        An aborted job's pieces make way for its last one. Whether a job is aborted is looked up
        once, since an abort may come at any moment.
        """
        open_jobs = {job.work.attempt: job for job in jobs if not job.ended}
        aborted = {number: job for number, job in open_jobs.items() if job.aborted}
        step = [taken for job in open_jobs.values() for taken in job.taken_pieces()]
        step += [
            piece for piece in pieces if piece.attempt in open_jobs and piece.attempt not in aborted
        ]
        step += [job.aborted_piece() for job in aborted.values()]
        for piece in step:
            if piece.end is not None or piece.error is not None:
                open_jobs[piece.attempt].ended = True
                with self._lock:
                    self._jobs.pop(piece.attempt, None)
        self._steps.put(step)
