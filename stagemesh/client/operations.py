"""Asks an orchestrator to steer what runs: pools, single replicas, or the orchestrator itself."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec
from grpc import aio

from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.admin.v1 import admin_service_pb2_grpc
from stagemesh.api.types.v1 import control_pb2
from stagemesh.control import PauseMode
from stagemesh.errors import MeshError
from stagemesh.rpc import error_of, open_channel

__all__ = ["ReplicaResult", "drain", "pause", "resume", "sleep", "undrain", "wake_up"]

_SLACK_S: Final = 5.0
"""What an answer may take after the time that a call has."""


class ReplicaResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call at one replica; `reason` is empty where it was carried out."""

    pool: str
    replica_id: str
    reason: str
    message: str


class _Answer(Protocol):
    @property
    def results(self) -> Iterable[pb.ReplicaResult]: ...


async def pause(
    address: str, pools: Sequence[str], mode: PauseMode, *, timeout_s: float
) -> list[ReplicaResult]:
    """Call `Pause` on an admin port; the others here are alike.

    Raises:
        MeshError: If the call is refused, or nobody answers.
    """
    told = control_pb2.PauseMode.ValueType(mode)
    request = pb.PauseRequest(pools=pools, mode=told, timeout_s=timeout_s)
    return await _call(address, "Pause", request, timeout_s)


async def resume(address: str, pools: Sequence[str], *, timeout_s: float) -> list[ReplicaResult]:
    """Call `Resume`; see `pause`."""
    request = pb.ResumeRequest(pools=pools, timeout_s=timeout_s)
    return await _call(address, "Resume", request, timeout_s)


async def sleep(
    address: str, pools: Sequence[str], mode: PauseMode, tags: Sequence[str], *, timeout_s: float
) -> list[ReplicaResult]:
    """Call `Sleep`; see `pause`."""
    told = control_pb2.PauseMode.ValueType(mode)
    request = pb.SleepRequest(pools=pools, mode=told, tags=tags, timeout_s=timeout_s)
    return await _call(address, "Sleep", request, timeout_s)


async def wake_up(
    address: str, pools: Sequence[str], tags: Sequence[str], *, timeout_s: float
) -> list[ReplicaResult]:
    """Call `WakeUp`; see `pause`."""
    request = pb.WakeUpRequest(pools=pools, tags=tags, timeout_s=timeout_s)
    return await _call(address, "WakeUp", request, timeout_s)


async def drain(
    address: str, replica_ids: Sequence[str], *, orchestrator: bool, drain_s: float
) -> list[ReplicaResult]:
    """Call `Drain`; see `pause`."""
    request = pb.DrainRequest(replica_ids=replica_ids, orchestrator=orchestrator, drain_s=drain_s)
    return await _call(address, "Drain", request, drain_s)


async def undrain(
    address: str, replica_ids: Sequence[str], *, orchestrator: bool, timeout_s: float
) -> list[ReplicaResult]:
    """Call `Undrain`; see `pause`."""
    request = pb.UndrainRequest(replica_ids=replica_ids, orchestrator=orchestrator)
    return await _call(address, "Undrain", request, timeout_s)


async def _call(address: str, method: str, request: Any, timeout_s: float) -> list[ReplicaResult]:
    async with open_channel(address) as channel:
        stub = admin_service_pb2_grpc.AdminServiceStub(channel)
        try:
            answer: _Answer = await getattr(stub, method)(request, timeout=timeout_s + _SLACK_S)
        except aio.AioRpcError as error:
            raise MeshError(error_of(error)) from error
    return [
        ReplicaResult(
            pool=one.pool,
            replica_id=one.replica_id,
            reason=one.error.reason,
            message=one.error.message,
        )
        for one in answer.results
    ]
