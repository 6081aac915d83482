"""The admin port of a running mesh, as an operator's program uses it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.admin.v1 import admin_service_pb2_grpc
from stagemesh.api.types.v1 import control_pb2, link_pb2
from stagemesh.rpc import open_channel
from tests.helpers.e2e_mesh import E2eMesh, until

__all__ = ["ABORT", "KEEP", "WAIT", "Admin", "admin_of"]

ABORT = control_pb2.PAUSE_MODE_ABORT
WAIT = control_pb2.PAUSE_MODE_WAIT
KEEP = control_pb2.PAUSE_MODE_KEEP


class Admin:
    """One orchestrator's admin port."""

    def __init__(self, stub: admin_service_pb2_grpc.AdminServiceStub) -> None:
        self.stub = stub

    async def call(self, method: str, *pools: str, **fields: Any) -> dict[str, str]:
        """Make a call; give what came of it at each replica, empty where it was carried out."""
        request = getattr(pb, f"{method}Request")(pools=pools, **fields)
        answer = await getattr(self.stub, method)(request, timeout=40)
        return {one.replica_id: one.error.reason for one in answer.results}

    async def states(self, *pools: str) -> dict[str, str]:
        """Give the state of each replica that has a link."""
        answer = await self.stub.ListReplicas(pb.ListReplicasRequest(pools=pools), timeout=5)
        prefix = "PROCESS_STATE_"
        return {
            one.replica_id: link_pb2.ProcessState.Name(one.state).removeprefix(prefix).lower()
            for one in answer.replicas
            if one.connected
        }

    async def until_all(self, state: str, pool: str, replicas: int = 2) -> None:
        """Wait until every replica of a pool is in a state."""

        def holds(states: dict[str, str]) -> bool:
            return list(states.values()) == [state] * replicas

        await until(lambda: self.states(pool), holds, 30)


@asynccontextmanager
async def admin_of(mesh: E2eMesh, orchestrator: str = "orchestrator-0") -> AsyncIterator[Admin]:
    """Talk to the admin port of one orchestrator."""
    (address,) = [
        one["admin_address"] for one in mesh.processes() if one["replica_id"] == orchestrator
    ]
    async with open_channel(address) as channel:
        yield Admin(admin_service_pb2_grpc.AdminServiceStub(channel))
