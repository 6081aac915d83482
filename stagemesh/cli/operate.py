"""Commands that steer a running mesh: which orchestrator is asked, and what is said of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from stagemesh.cli.supervision import Role
from stagemesh.client import ReplicaResult, drain, undrain
from stagemesh.errors import MeshError, invalid
from stagemesh.outcome import ErrorCode, error_for

__all__ = ["admins_of", "ask_any", "results_told", "take_out"]

Processes = Sequence[Mapping[str, Any]]


def admins_of(processes: Processes) -> dict[str, str]:
    """Give the admin address of each orchestrator."""
    return {
        str(one["replica_id"]): str(one["admin_address"])
        for one in processes
        if one.get("admin_address")
    }


async def ask_any(
    processes: Processes, ask: Callable[[str], Awaitable[list[ReplicaResult]]]
) -> list[ReplicaResult]:
    """Ask one orchestrator after the other, until one can be reached.

    Raises:
        MeshError: If none can be, or one refuses.
    """
    lost = MeshError(error_for("no_orchestrator"))
    for address in admins_of(processes).values():
        try:
            return await ask(address)
        except MeshError as error:
            if error.info.code is not ErrorCode.LINK_LOST:
                raise
            lost = error
    raise lost


async def take_out(
    processes: Processes, names: Sequence[str], *, drain_s: float, undo: bool
) -> list[ReplicaResult]:
    """Drain replicas and orchestrators by their names, all at once, or take them in again.

    Raises:
        MeshError: If a name is neither, or an orchestrator cannot be reached.
    """
    admins = admins_of(processes)
    workers = {str(one["replica_id"]) for one in processes if one["role"] == Role.STAGE_WORKER}
    for name in names:
        if name not in admins and name not in workers:
            raise invalid(f"{name} is neither an orchestrator nor a stage worker.", param="names")

    async def one(address: str, replica_ids: Sequence[str]) -> list[ReplicaResult]:
        own = not replica_ids
        if undo:
            return await undrain(address, replica_ids, orchestrator=own, timeout_s=30.0)
        return await drain(address, replica_ids, orchestrator=own, drain_s=drain_s)

    replica_ids = [name for name in names if name in workers]
    asked = [one(admins[name], ()) for name in names if name in admins]
    if replica_ids:
        asked.append(ask_any(processes, lambda address: one(address, replica_ids)))
    found = await asyncio.gather(*asked)
    return [result for results in found for result in results]


def results_told(results: Sequence[ReplicaResult]) -> list[str]:
    """Write a line for each replica."""
    return [
        f"{one.pool}/{one.replica_id}: "
        + (f"{one.reason}: {one.message}" if one.reason else "done")
        for one in results
    ]
