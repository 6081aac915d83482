"""What runs in a mesh: the launcher's view, with what the processes say of themselves."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from grpc import aio
from rich.markup import escape
from rich.table import Table

from stagemesh.cli.supervision import ChildState, Role
from stagemesh.client import ReplicaList, http_status, list_replicas

__all__ = ["COLUMNS", "gather_status", "merge_status", "status_table"]

COLUMNS: Final = (
    "role",
    "pid",
    "address",
    "pool",
    "replica_id",
    "incarnation",
    "state",
    "inflight",
)

_TIMEOUT_S: Final = 2.0
_OK: Final = 200
_Record = dict[str, Any]

# What the launcher alone can know, and what is therefore true whatever anybody else remembers.
_LAUNCHER_KNOWS: Final = frozenset(set(ChildState) - {ChildState.STARTING, ChildState.READY})


async def gather_status(processes: Sequence[Mapping[str, Any]]) -> list[_Record]:
    """Ask every orchestrator and gateway, all at once, and merge their answers."""
    admins = [str(process.get("admin_address", "")) for process in processes]
    http = [str(p["address"]) if p["role"] == Role.GATEWAY else "" for p in processes]
    async with asyncio.TaskGroup() as tasks:
        listing = {a: tasks.create_task(_listed(a)) for a in admins if a}
        getting = {
            a: tasks.create_task(http_status(a, "/ready", timeout_s=_TIMEOUT_S)) for a in http if a
        }
    lists = {a: task.result() for a, task in listing.items()}
    ready = {a: task.result() == _OK for a, task in getting.items()}
    return merge_status(processes, {a: found for a, found in lists.items() if found}, ready)


def merge_status(
    processes: Sequence[Mapping[str, Any]],
    lists: Mapping[str, ReplicaList],
    ready: Mapping[str, bool],
) -> list[_Record]:
    """Put together what the launcher says, the orchestrators (by admin address) and `/ready`."""
    merged = []
    for process in processes:
        record: _Record = {column: process.get(column) for column in COLUMNS}
        if process["state"] not in _LAUNCHER_KNOWS:
            record.update(_live(process, lists, ready))
        for known in ("admin_address", "last_log"):
            if process.get(known):
                record[known] = process[known]
        merged.append(record)
    return merged


def status_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Draw the records as a table, the last log lines of a crash-loop below their process."""
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, no_wrap=True)
    for record in records:
        cells = ["-" if record[column] is None else str(record[column]) for column in COLUMNS]
        table.add_row(*(escape(cell) for cell in cells))
    return table


def _live(
    process: Mapping[str, Any], lists: Mapping[str, ReplicaList], ready: Mapping[str, bool]
) -> _Record:
    if process["role"] == Role.GATEWAY:
        fallback = ChildState.STARTING if process["state"] == ChildState.STARTING else "not-ready"
        return {"state": ChildState.READY if ready.get(process["address"]) else fallback}
    if process["role"] == Role.ORCHESTRATOR:
        found = lists.get(process.get("admin_address", ""))
        if found is None:
            return {}
        own = found.orchestrator
        return _said(process, own.state, own.incarnation, own.requests_open)
    seen = [
        replica
        for found in lists.values()
        for replica in found.replicas
        # Until its next link, an orchestrator may still remember an earlier life.
        if replica.replica_id == process["replica_id"] and replica.pid == process["pid"]
    ]
    linked = [replica for replica in seen if replica.state]
    if not linked:
        return {}
    inflight = sum(replica.inflight for replica in linked)
    return _said(process, linked[0].state, linked[0].incarnation, inflight)


def _said(process: Mapping[str, Any], state: str, incarnation: int, inflight: int) -> _Record:
    return {
        "state": state or process["state"],
        "incarnation": f"{incarnation:016x}",
        "inflight": inflight,
    }


async def _listed(address: str) -> ReplicaList | None:
    try:
        return await list_replicas(address, timeout_s=_TIMEOUT_S)
    except aio.AioRpcError:
        return None
