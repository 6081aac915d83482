from typing import Any

import pytest
from grpc import aio

from stagemesh.api.admin.v1 import admin_service_pb2, admin_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.client import ListedOrchestrator, ListedReplica, list_replicas
from stagemesh.rpc import start_server


class Admin(admin_service_pb2_grpc.AdminServiceServicer):
    """Answers with two replicas, of which one has no link."""

    ExplainRequest = None  # type: ignore[assignment]

    async def ListReplicas(  # noqa: N802 - the name is gRPC's.
        self, request: Any, context: Any
    ) -> admin_service_pb2.ListReplicasResponse:
        """List them."""
        del request, context
        common: Any = {
            "pool": "thinker",
            "address": "127.0.0.1:1",
            "incarnation": 1 << 63,
            "pid": 7,
        }
        ready = link_pb2.PROCESS_STATE_READY
        return admin_service_pb2.ListReplicasResponse(
            orchestrator=link_pb2.Hello(
                id="o-0", incarnation=5, state=link_pb2.PROCESS_STATE_DRAINING
            ),
            requests_open=3,
            replicas=[
                admin_service_pb2.Replica(
                    replica_id="t-0", state=ready, connected=True, inflight=2, **common
                ),
                admin_service_pb2.Replica(replica_id="t-1", state=ready, **common),
            ],
        )


async def test_an_orchestrator_s_list_comes_as_plain_values() -> None:
    server = await start_server(
        "127.0.0.1:0",
        register=lambda server: admin_service_pb2_grpc.add_AdminServiceServicer_to_server(
            Admin(), server
        ),
        services=(),
    )
    try:
        found = await list_replicas(server.address, timeout_s=5.0)
    finally:
        await server.stop(0)
    assert found.orchestrator == ListedOrchestrator(
        id="o-0", incarnation=5, state="draining", requests_open=3
    )
    linked = ListedReplica(
        replica_id="t-0", pool="thinker", pid=7, incarnation=1 << 63, state="ready", inflight=2
    )
    assert found.replicas[0] == linked
    assert (found.replicas[1].replica_id, found.replicas[1].state) == ("t-1", "")


async def test_nobody_there_is_an_error_of_the_call() -> None:
    with pytest.raises(aio.AioRpcError):
        await list_replicas("127.0.0.1:1", timeout_s=0.5)
