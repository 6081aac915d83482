"""Control calls, carried out by the engine beside its attempts."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from services.stage_worker.core.effects import CallEngine
from services.stage_worker.core.events import EngineAnswered, Event
from services.stage_worker.engines.base import Engine
from stagemesh.control import Answer
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["EngineCalls"]

CALL_S_MAX: Final = 600.0
"""After this an engine is not waited for any more, whatever the caller's own time was."""

_log = logging.getLogger(__name__)


class EngineCalls:
    """Gives the engine its calls, each in a task; the core never asks for two at once."""

    def __init__(
        self, engine: Engine, post: Callable[[Event], None], tasks: asyncio.TaskGroup
    ) -> None:
        self._engine = engine
        self._post = post
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None

    def start(self, effect: CallEngine) -> None:
        """Carry out a call; what comes of it is posted."""
        self._task = self._tasks.create_task(self._call(effect), name=f"control-{effect.number}")

    def close(self) -> None:
        """Give up what is under way: the engine is going to be closed."""
        if self._task is not None:
            self._task.cancel()

    async def _call(self, effect: CallEngine) -> None:
        limit = asyncio.timeout(CALL_S_MAX)
        try:
            async with limit:
                answer = await self._engine.control(effect.call)
        except MeshError as error:
            answer = Answer(error=error.info)
        except Exception as error:  # Engines are plugins: a failed call must not end the worker.
            kind = type(error).__name__
            _log.exception("control_call_failed", extra={"call": type(effect.call).__name__})
            answer = Answer(
                error=error_for("deadline_exceeded", "The engine gave no answer.")
                if limit.expired()
                else error_for("engine_error", f"The engine failed: {kind}.")
            )
        self._post(EngineAnswered(number=effect.number, answer=answer))
