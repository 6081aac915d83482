"""How the launcher learns that processes are ready."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from stagemesh.cli.plan import Plan, ProcessSpec
from stagemesh.cli.supervision import Role
from stagemesh.client import http_status, watch_health

__all__ = ["REAL_PROBES", "Probes"]

STAGE_SERVICE: Final = "stagemesh.api.stage.v1.StageService"
ORCHESTRATOR_SERVICE: Final = "stagemesh.api.orchestrator.v1.OrchestratorService"

_OK: Final = 200
_HTTP_TIMEOUT_S: Final = 2.0
_HTTP_PAUSE_S: Final = 0.2
_WATCH_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Probes:
    """What a launcher asks; tests have probes of their own."""

    process: Callable[[ProcessSpec], AsyncGenerator[bool]]
    """Yields whether one process is ready, and each change; cancelled when the process ends."""
    models: Callable[[Plan], Awaitable[None]]
    """Returns once every model can be asked for."""


async def _readiness(spec: ProcessSpec) -> AsyncGenerator[bool]:
    """Yield whether a process is ready, and each change; the caller ends it with the process."""
    if spec.role is Role.GATEWAY:
        # HTTP has no way to be told of a change; this ends once it is ready.
        while await http_status(spec.address, "/ready", timeout_s=_HTTP_TIMEOUT_S) != _OK:
            yield False
            await asyncio.sleep(_HTTP_PAUSE_S)
        yield True
        return
    service = STAGE_SERVICE if spec.role is Role.STAGE_WORKER else ORCHESTRATOR_SERVICE
    while True:
        async with aclosing(watch_health(spec.address, service)) as changes:
            async for ready in changes:
                yield ready
        await asyncio.sleep(_WATCH_PAUSE_S)


async def _models_served(plan: Plan) -> None:
    """Return once every orchestrator serves every model."""
    async with asyncio.TaskGroup() as tasks:
        for spec in plan.processes:
            if spec.role is Role.ORCHESTRATOR:
                for model in plan.models:
                    tasks.create_task(_served(spec.address, model))


async def _served(address: str, model: str) -> None:
    while True:
        async with aclosing(watch_health(address, model)) as changes:
            async for ready in changes:
                if ready:
                    return
        await asyncio.sleep(_WATCH_PAUSE_S)


REAL_PROBES: Final = Probes(process=_readiness, models=_models_served)
