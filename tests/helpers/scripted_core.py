"""A core that does what a test says, and a driver around it that runs without links."""

import asyncio
from collections.abc import Callable

from services.orchestrator.core.effects import Effect, PublishModels
from services.orchestrator.core.events import Event
from services.orchestrator.driver import Driver

__all__ = ["DriverLog", "ScriptedCore", "drive"]


class ScriptedCore:
    """A core that notes every event and answers as a test says; silence by default."""

    def __init__(self, answer: Callable[[Event], list[Effect]] | None = None) -> None:
        self.answer = answer or (lambda event: [])
        self.stepped: list[tuple[Event, float]] = []
        self.next_wakeup_s: float | None = None
        self.requests_open = 0
        self._stirred = asyncio.Event()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a step has brought what a test waits for."""
        async with asyncio.timeout(5):
            while not reached():
                self._stirred.clear()
                await self._stirred.wait()

    @property
    def events(self) -> list[Event]:
        """Everything that was stepped, in order."""
        return [event for event, _ in self.stepped]

    def step(self, event: Event, now_s: float) -> list[Effect]:
        """Note the event, and answer as scripted."""
        self.stepped.append((event, now_s))
        self._stirred.set()
        return self.answer(event)


class DriverLog:
    """Everything that a driver told, in order."""

    def __init__(self) -> None:
        self.lines: list[object] = []
        self.failed: list[Exception] = []

    def stepped(self, event: Event, effects: list[Effect], now_s: float, took_s: float) -> None:
        """Note a step."""
        assert took_s >= 0
        self.lines.append(("stepped", event, len(effects)))

    def published(self, effect: PublishModels) -> None:
        """Note a publication."""
        self.lines.append(effect)


def drive(core: ScriptedCore, log: DriverLog | None = None) -> Driver:
    """Put a driver around a core; a test that has no log does not expect it to break."""
    log = log or DriverLog()
    return Driver(core, observers=[log], published=log.published, failed=log.failed.append)
