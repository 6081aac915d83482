"""An engine that a test drives by hand, and an outlet that keeps what goes out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from services.stage_worker.core import effects as do
from services.stage_worker.driver import LinkEffect
from services.stage_worker.engines.base import (
    Capabilities,
    EngineInput,
    LoadReport,
    ModelCard,
    Piece,
    ResumeContract,
    Work,
)
from stagemesh.control import Answer, Call, ControlSupport
from stagemesh.media import Modality

__all__ = ["HandEngine", "KeptOutlet"]

E = TypeVar("E", bound=do.Effect)


class HandEngine:
    """Keeps what it is told; gives the steps that a test puts into `steps`."""

    def __init__(
        self,
        *,
        stream_input: bool = True,
        slots: int = 4,
        contract: ResumeContract = ResumeContract.NONE,
        control: ControlSupport | None = None,
        paces_input: bool = False,
    ) -> None:
        self.capabilities: Capabilities = Capabilities(
            input_modalities=frozenset(Modality),
            output_modalities=frozenset(Modality),
            stream_input=stream_input,
            stream_output=True,
            resume_contract=contract,
            deterministic=True,
            slots=slots,
            control=control or ControlSupport(),
            paces_input=paces_input,
        )
        self.works: list[Work] = []
        self.appended: list[tuple[int, EngineInput]] = []
        self.closed_inputs: list[int] = []
        self.aborted: list[int] = []
        self.steps: asyncio.Queue[list[Piece] | Exception | None] = asyncio.Queue()
        self.refuse_with: Exception | None = None
        self.calls: list[Call] = []
        self.answers: asyncio.Queue[Answer | Exception] = asyncio.Queue()
        self.abort_with: Exception | None = None
        self.step_count = 0

    async def load(self, progress: Callable[[str], None]) -> ModelCard:
        """See `Engine`."""
        progress("by hand")
        return ModelCard(model="hand")

    def submit(self, work: Work) -> None:
        """See `Engine`; raises what the test wants."""
        if self.refuse_with is not None:
            raise self.refuse_with
        self.works.append(work)

    def append(self, attempt: int, piece: EngineInput) -> None:
        """See `Engine`."""
        self.appended.append((attempt, piece))

    def close_input(self, attempt: int) -> None:
        """See `Engine`."""
        self.closed_inputs.append(attempt)

    def abort(self, attempt: int) -> None:
        """See `Engine`; raises what the test wants."""
        self.aborted.append(attempt)
        if self.abort_with is not None:
            raise self.abort_with

    async def outputs(self) -> AsyncIterator[list[Piece]]:
        """See `Engine`; an exception breaks it, None ends it."""
        while (step := await self.steps.get()) is not None:
            if isinstance(step, Exception):
                raise step
            yield step

    async def control(self, call: Call) -> Answer:
        """See `Engine`; gives the answers that the test puts into `answers`, or raises them."""
        self.calls.append(call)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def load_report(self) -> LoadReport:
        """See `Engine`."""
        return LoadReport(running=len(self.works), waiting=0, steps=self.step_count)

    async def close(self) -> None:
        """See `Engine`."""
        self.steps.put_nowait(None)


class KeptOutlet:
    """Keeps what goes out, and wakes whoever waits for it."""

    def __init__(self) -> None:
        self.sent: list[LinkEffect] = []
        self.reports = 0
        self._changed = asyncio.Event()

    def perform(self, effect: LinkEffect) -> None:
        """See `Outlet`."""
        self.sent.append(effect)
        self._changed.set()

    def report(self) -> None:
        """See `Outlet`."""
        self.reports += 1
        self._changed.set()

    def of(self, kind: type[E]) -> list[E]:
        """Pick what was sent of one kind."""
        return [effect for effect in self.sent if isinstance(effect, kind)]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds of what went out.

        Raises:
            TimeoutError: If it does not come to hold.
        """
        async with asyncio.timeout(5):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
