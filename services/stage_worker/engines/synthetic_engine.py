"""The synthetic engine: it does what a script in the request says, and takes no time of its own.

It never computes a model, so whatever a test sees of timing, order, sizes and faults comes from the
script and from the mesh. `support/synthetic_script.py` has the keys of a script.
"""

import asyncio
import heapq
import math
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from services.stage_worker.engines.base import (
    Capabilities,
    Engine,
    EngineConfig,
    EngineInput,
    LoadReport,
    ModelCard,
    Piece,
    ResumeContract,
    Work,
)
from services.stage_worker.engines.support.synthetic_controls import (
    ControlOptions,
    SyntheticControls,
)
from services.stage_worker.engines.support.synthetic_run import Run
from stagemesh.control import Answer, Call
from stagemesh.errors import BadSettings, MeshError, unsupported
from stagemesh.media import AudioParams, ImageParams, Modality, Sampling
from stagemesh.outcome import FinishReason, default_reason, error_for

__all__ = ["CRASH_EXIT_CODE", "SyntheticEngine", "create"]

CRASH_EXIT_CODE: Final = 70
"""How the process exits at `crash_at`, so that a launcher's log can tell it from other deaths."""

SLOTS_DEFAULT: Final = 256


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a synthetic pool; `gives` names modalities, as a list or with commas.

    `contract` says how its attempts go on elsewhere; by default text by its tokens, while anything
    else is made again. `control` is about control calls; see `ControlOptions`.
    """

    gives: str | list[str] = "text"
    slots: int = SLOTS_DEFAULT
    contract: str = ""
    control: ControlOptions = ControlOptions()

    def modalities(self) -> frozenset[Modality]:
        """Read `gives`."""
        names = self.gives.split(",") if isinstance(self.gives, str) else self.gives
        return frozenset(Modality[name.strip().upper()] for name in names)

    def resume_contract(self) -> ResumeContract:
        """Read `contract`."""
        if self.contract:
            return ResumeContract[self.contract.upper()]
        text_only = self.modalities() == {Modality.TEXT}
        return ResumeContract.TOKENS if text_only else ResumeContract.REPLAY


class SyntheticEngine:
    """Runs scripts. Everything that is due at one moment comes in one step, as from one batch."""

    def __init__(self, config: EngineConfig) -> None:
        try:
            options = msgspec.convert(dict(config.options), _Options)
            gives, contract = options.modalities(), options.resume_contract()
            support = options.control.support()
        except (msgspec.ValidationError, KeyError) as error:
            raise BadSettings(f"pool {config.pool}: options of synthetic: {error}") from error
        self._model = config.model or "synthetic"
        self.capabilities: Capabilities = Capabilities(
            input_modalities=frozenset(Modality),
            output_modalities=gives,
            stream_input=True,
            stream_output=True,
            resume_contract=contract,
            deterministic=True,
            slots=options.slots,
            params=_params_for(gives),
            control=support,
            interactions=gives == {Modality.VIDEO},
            paces_input=True,
        )
        self._controls = SyntheticControls(options.control, _crash)
        self._runs: dict[int, Run] = {}
        self._due: list[tuple[float, int]] = []
        self._answers: list[Piece] = []
        self._steps = 0
        self._closed = False
        self._wake: asyncio.Future[None] | None = None

    async def load(self, progress: Callable[[str], None]) -> ModelCard:
        """Be ready at once."""
        progress("nothing to load")
        return ModelCard(model=self._model)

    def submit(self, work: Work) -> None:
        """Start an attempt.

        Raises:
            MeshError: If the script is bad or asks for a refusal, an output or an adapter is not
                there, or the attempt is to go on after token ids that no script gives.
        """
        beyond = work.wanted - self.capabilities.output_modalities
        if beyond:
            raise unsupported(
                f"this pool does not give {sorted(beyond)[0].name.lower()}",
                reason="unsupported_modality",
            )
        resume = work.resume
        if resume is not None and resume.token_ids != tuple(range(len(resume.token_ids))):
            raise MeshError(error_for("protocol_error", "token i of a script has the id i"))
        if work.adapter:
            self._controls.adapters.get(work.adapter)
        per_input = self.capabilities.resume_contract is ResumeContract.PER_INPUT
        run = Run(work, self._now_s(), per_input=per_input)
        rejection = run.script.rejection
        if rejection is not None:
            raise MeshError(error_for(default_reason(rejection), "the script refuses"))
        self._runs[work.attempt] = run
        self._schedule(run)

    def append(self, attempt: int, piece: EngineInput) -> None:
        """Let a streamed attempt give as many units more."""
        run = self._runs.get(attempt)
        if run is not None:
            run.append(piece)
            if taken := run.take():  # What comes after the last unit is of no use to it.
                self._answers.append(taken)
                self._ring()
            self._schedule(run)

    def close_input(self, attempt: int) -> None:
        """Let a streamed attempt give all that is left."""
        run = self._runs.get(attempt)
        if run is not None:
            run.close()
            self._schedule(run)

    def interact(self, attempt: int, text: str) -> int:
        """Let the frames of a video have another colour, from the next one on.

        Raises:
            MeshError: If the attempt is over, or gives no video.
        """
        run = self._runs.get(attempt)
        if run is None:
            raise MeshError(error_for("conflict", "the attempt is over"))
        return run.change(text)

    def abort(self, attempt: int) -> None:
        """Stop an attempt, unless its script ignores that."""
        run = self._runs.get(attempt)
        if run is None or run.script.ignore_abort:
            return
        del self._runs[attempt]
        self._answers.append(
            Piece(
                attempt=attempt,
                end=run.ended_by(FinishReason.ABORT),
                error=error_for("aborted"),
            )
        )
        self._ring()

    async def outputs(self) -> AsyncIterator[list[Piece]]:
        """Yield what is due, step by step, until `close`."""
        while not self._closed:
            step = self._step()
            if step:
                self._steps += 1
                yield step
                await asyncio.sleep(0)
            else:
                await self._until_due()

    async def control(self, call: Call) -> Answer:
        """Carry out a control call, as the pool's options have it."""
        answer = await self._controls.carry_out(call)
        self._ring()
        return answer

    def load_report(self) -> LoadReport:
        """Tell how many attempts run; none ever waits."""
        return LoadReport(running=len(self._runs), waiting=0, steps=self._steps)

    async def close(self) -> None:
        """Stop everything."""
        self._closed = True
        self._runs.clear()
        self._ring()

    def _step(self) -> list[Piece]:
        """Give the pieces of every attempt that is due."""
        step, self._answers = self._answers, []
        if self._controls.frozen:
            return step
        if self._controls.asleep and self._runs:
            raise RuntimeError("it was given work while it was asleep")
        now_s = self._now_s()
        due = self._due
        runs: list[Run] = []
        while due and due[0][0] <= now_s:
            run = self._runs.get(heapq.heappop(due)[1])
            if run is not None:
                run.scheduled = False
                runs.append(run)
        for run in runs:
            if run.made == run.fault_at:
                self._fail(run, step)
                continue
            step.extend(run.give(run.step_units()))
            if run.done:
                del self._runs[run.number]
            else:
                if taken := run.take():
                    step.append(taken)
                run.due_s = _next_due_s(run, now_s)
                self._schedule(run)
        return step

    def _fail(self, run: Run, step: list[Piece]) -> None:
        """Do what the script has for this unit: crash, hang or fail."""
        script = run.script
        if run.made == script.crash_at:
            _crash()
        if run.made == script.hang_at:
            return  # It stays in `_runs` and is never scheduled: only an abort ends it.
        code = script.failure
        error = error_for(default_reason(code), "the script fails here")
        del self._runs[run.number]
        step.append(Piece(attempt=run.number, end=run.ended_by(FinishReason.ABORT), error=error))

    def _schedule(self, run: Run) -> None:
        if run.scheduled or not run.ready() or self._hangs(run):
            return
        run.scheduled = True
        heapq.heappush(self._due, (run.due_s, run.number))
        self._ring()

    def _hangs(self, run: Run) -> bool:
        return run.made == run.script.hang_at and run.fault_at == run.made

    async def _until_due(self) -> None:
        """Sleep until the next attempt is due, or something changes."""
        loop = asyncio.get_running_loop()
        self._wake = wake = loop.create_future()
        waits = self._due and not self._controls.frozen
        timer = loop.call_at(self._due[0][0], self._ring) if waits else None
        try:
            await wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()

    def _ring(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _crash() -> None:
    os._exit(CRASH_EXIT_CODE)


def _next_due_s(run: Run, now_s: float) -> float:
    """Give the next instant of a grid that all attempts of one pace share, so that they batch."""
    each_s = run.script.each_ms / 1000
    if each_s == 0:
        return now_s
    at_s = max(run.due_s + each_s, now_s)
    return math.ceil(at_s / each_s - 1e-6) * each_s


def _params_for(gives: frozenset[Modality]) -> frozenset[str]:
    """Give what an engine would mind that gives this; a script minds little of it itself."""
    fields: set[str] = set()
    if gives & {Modality.TEXT, Modality.AUDIO, Modality.TENSOR}:
        fields.update(f"sampling.{name}" for name in Sampling.__struct_fields__)
    if Modality.AUDIO in gives:
        fields.update(f"audio.{name}" for name in AudioParams.__struct_fields__)
    if gives & {Modality.IMAGE, Modality.VIDEO}:
        fields.update(f"image.{name}" for name in ImageParams.__struct_fields__)
    return frozenset(fields)


def create(config: EngineConfig) -> Engine:
    """Make the synthetic engine of a pool.

    Raises:
        BadSettings: If an option is unknown or wrong.
    """
    return SyntheticEngine(config)
