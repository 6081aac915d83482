"""`AdminService`: the admin port. What a call means is decided elsewhere, and passed on here."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Protocol

from grpc import aio

from services.orchestrator.core.effects import ReplicaResult
from services.orchestrator.driver import DRAIN_SLACK_S
from services.orchestrator.servicer.draining import Draining
from services.orchestrator.servicer.operations import Operations
from services.orchestrator.servicer.requests import ANY_TENANT, Requests
from services.orchestrator.servicer.watchers import ReplicaViews, Watchers
from services.orchestrator.translate import controls
from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.admin.v1 import admin_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.control import (
    Call,
    Drain,
    ListAdapters,
    ResetCache,
    Resume,
    StartProfile,
    StopProfile,
    Undrain,
)
from stagemesh.errors import invalid

__all__ = ["AdminServicer"]

Context = aio.ServicerContext[Any, Any]


class _ForPools(Protocol):
    """A request that names pools and may say how long it may take."""

    @property
    def pools(self) -> Sequence[str]: ...

    @property
    def timeout_s(self) -> float: ...

    def HasField(self, field_name: Any) -> bool: ...


class AdminServicer(admin_service_pb2_grpc.AdminServiceServicer):
    """Serves operators. Method names and shapes are those of the service definition."""

    # ruff: noqa: N802, D102 - each method is what the service definition says of it.

    def __init__(
        self,
        *,
        pools: Collection[str],
        views: ReplicaViews,
        watchers: Watchers,
        operations: Operations,
        draining: Draining,
        hello: Callable[[], link_pb2.Hello],
        requests: Requests,
    ) -> None:
        self._pools = frozenset(pools)
        self._requests = requests
        self._views = views
        self._watchers = watchers
        self._operations = operations
        self._draining = draining
        self._hello = hello

    async def ListReplicas(
        self, request: pb.ListReplicasRequest, context: Context
    ) -> pb.ListReplicasResponse:
        pools = controls.pools_of(request.pools, self._pools)
        return pb.ListReplicasResponse(
            replicas=self._watchers.replicas(pools),
            orchestrator=self._hello(),
            requests_open=self._views.requests_open,
        )

    async def ExplainRequest(
        self, request: pb.ExplainRequestRequest, context: Context
    ) -> pb.ExplainRequestResponse:
        shown = self._requests.show(request.request_id, ANY_TENANT)
        return pb.ExplainRequestResponse(request=shown)

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        pools = controls.pools_of(request.pools, self._pools)
        async for response in self._watchers.watch(pools):
            yield response

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.PauseResponse:
        return pb.PauseResponse(results=await self._ask(request, controls.pause(request)))

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        return pb.ResumeResponse(results=await self._ask(request, Resume()))

    async def Sleep(self, request: pb.SleepRequest, context: Context) -> pb.SleepResponse:
        return pb.SleepResponse(results=await self._ask(request, controls.sleep(request)))

    async def WakeUp(self, request: pb.WakeUpRequest, context: Context) -> pb.WakeUpResponse:
        return pb.WakeUpResponse(results=await self._ask(request, controls.wake_up(request)))

    async def ResetCache(
        self, request: pb.ResetCacheRequest, context: Context
    ) -> pb.ResetCacheResponse:
        return pb.ResetCacheResponse(results=await self._ask(request, ResetCache()))

    async def LoadAdapter(
        self, request: pb.LoadAdapterRequest, context: Context
    ) -> pb.LoadAdapterResponse:
        call = controls.adapter_load(request)
        return pb.LoadAdapterResponse(results=await self._ask(request, call))

    async def UnloadAdapter(
        self, request: pb.UnloadAdapterRequest, context: Context
    ) -> pb.UnloadAdapterResponse:
        call = controls.adapter_unload(request)
        return pb.UnloadAdapterResponse(results=await self._ask(request, call))

    async def ListAdapters(
        self, request: pb.ListAdaptersRequest, context: Context
    ) -> pb.ListAdaptersResponse:
        return pb.ListAdaptersResponse(results=await self._ask(request, ListAdapters()))

    async def StartProfile(
        self, request: pb.StartProfileRequest, context: Context
    ) -> pb.StartProfileResponse:
        return pb.StartProfileResponse(results=await self._ask(request, StartProfile()))

    async def StopProfile(
        self, request: pb.StopProfileRequest, context: Context
    ) -> pb.StopProfileResponse:
        return pb.StopProfileResponse(results=await self._ask(request, StopProfile()))

    async def CollectiveCall(
        self, request: pb.CollectiveCallRequest, context: Context
    ) -> pb.CollectiveCallResponse:
        pools = controls.pools_of(request.pools, self._pools)
        allowed = [
            replica.worker.capabilities.collective_calls
            for replica in self._watchers.replicas(pools)
            if replica.connected
        ]
        call = controls.collective_call(request, allowed)
        return pb.CollectiveCallResponse(results=await self._ask(request, call))

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        drain_s = controls.seconds_of(request, "drain_s")
        self._check_target(request)
        wait_s = drain_s + DRAIN_SLACK_S
        try:
            async with asyncio.TaskGroup() as tasks:
                if request.orchestrator:
                    tasks.create_task(self._draining.drain(drain_s))
                asked = await self._operations.call_replicas(
                    Drain(drain_s=drain_s), request.replica_ids, wait_s
                )
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        return pb.DrainResponse(
            results=map(controls.result_to_proto, asked),
            requests_open=self._views.requests_open if request.orchestrator else 0,
        )

    async def Undrain(self, request: pb.UndrainRequest, context: Context) -> pb.UndrainResponse:
        self._check_target(request)
        if request.orchestrator:
            self._draining.undrain()
        results = await self._operations.call_replicas(
            Undrain(), request.replica_ids, controls.TIMEOUT_S
        )
        return pb.UndrainResponse(results=map(controls.result_to_proto, results))

    async def _ask(self, request: _ForPools, call: Call) -> list[pb.ReplicaResult]:
        pools = controls.pools_of(request.pools, self._pools)
        wait_s = controls.seconds_of(request, "timeout_s")
        results: list[ReplicaResult] = await self._operations.call_pools(call, pools, wait_s)
        return list(map(controls.result_to_proto, results))

    def _check_target(self, request: pb.DrainRequest | pb.UndrainRequest) -> None:
        if not (request.replica_ids or request.orchestrator):
            raise invalid(
                "Name a replica, or the orchestrator.",
                param="replica_ids",
                reason="missing_required_parameter",
            )
        self._operations.check(request.replica_ids)
