"""Asks an orchestrator what runs where."""

import msgspec

from stagemesh.api.admin.v1 import admin_service_pb2, admin_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.rpc import open_channel

__all__ = ["ListedOrchestrator", "ListedReplica", "ReplicaList", "list_replicas"]

_STATE_PREFIX = "PROCESS_STATE_"


class ListedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as one orchestrator sees it; `state` is empty while there is no link."""

    replica_id: str
    pool: str
    pid: int
    incarnation: int
    state: str
    inflight: int


class ListedOrchestrator(msgspec.Struct, frozen=True, kw_only=True):
    """The orchestrator that answered."""

    id: str
    incarnation: int
    state: str
    requests_open: int


class ReplicaList(msgspec.Struct, frozen=True, kw_only=True):
    """One orchestrator's view of its mesh."""

    orchestrator: ListedOrchestrator
    replicas: tuple[ListedReplica, ...]


async def list_replicas(address: str, *, timeout_s: float) -> ReplicaList:
    """Call `ListReplicas` on an admin port.

    Raises:
        grpc.aio.AioRpcError: If it does not answer, or not in time.
    """
    async with open_channel(address) as channel:
        stub = admin_service_pb2_grpc.AdminServiceStub(channel)
        request = admin_service_pb2.ListReplicasRequest()
        answer = await stub.ListReplicas(request, timeout=timeout_s)
    hello = answer.orchestrator
    return ReplicaList(
        orchestrator=ListedOrchestrator(
            id=hello.id,
            incarnation=hello.incarnation,
            state=_state(hello.state),
            requests_open=answer.requests_open,
        ),
        replicas=tuple(_replica(replica) for replica in answer.replicas),
    )


def _replica(replica: admin_service_pb2.Replica) -> ListedReplica:
    return ListedReplica(
        replica_id=replica.replica_id,
        pool=replica.pool,
        pid=replica.pid,
        incarnation=replica.incarnation,
        state=_state(replica.state) if replica.connected else "",
        inflight=replica.inflight,
    )


def _state(value: link_pb2.ProcessState.ValueType) -> str:
    if value == link_pb2.PROCESS_STATE_UNSPECIFIED:
        return ""
    return link_pb2.ProcessState.Name(value).removeprefix(_STATE_PREFIX).lower()
