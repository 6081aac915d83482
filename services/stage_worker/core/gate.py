"""What operators have closed here, and whether the engine stands still."""

import msgspec

from services.stage_worker.core.refusals import ProcessState
from stagemesh.control import OPEN, PauseMode

__all__ = ["Gate"]


class Gate:
    """The worker's own state, that every orchestrator obeys; `frozen` while attempts stand still.

    It is opened by a resume only: waking up leaves it paused.
    """

    def __init__(self) -> None:
        self.value = OPEN
        self.frozen = False

    @property
    def state(self) -> ProcessState:
        """What it makes of a worker that could take attempts."""
        if self.value.drained:
            return ProcessState.DRAINING
        if self.value.asleep:
            return ProcessState.ASLEEP
        return ProcessState.READY if self.value.paused is None else ProcessState.PAUSED

    def pause(self, mode: PauseMode) -> None:
        """Take nothing new."""
        self.value = msgspec.structs.replace(self.value, paused=mode)

    def resume(self) -> None:
        """Take new attempts again, if nothing else is against it."""
        self.value = msgspec.structs.replace(self.value, paused=None)

    def sleep(self, tags: frozenset[str]) -> None:
        """Note that more of the engine is asleep."""
        self.value = msgspec.structs.replace(self.value, asleep=self.value.asleep | tags)

    def wake_up(self, tags: frozenset[str]) -> None:
        """Note that some of the engine is awake again."""
        self.value = msgspec.structs.replace(self.value, asleep=self.value.asleep - tags)

    def drain(self, *, drained: bool) -> None:
        """Take the worker out, or in again."""
        self.value = msgspec.structs.replace(self.value, drained=drained)
