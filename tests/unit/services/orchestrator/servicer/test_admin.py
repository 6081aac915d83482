"""The admin port, without a server."""

from typing import Any

from services.orchestrator.core.replicas import WorkerState
from services.orchestrator.core.views import ReplicaView
from services.orchestrator.servicer import AdminServicer
from services.orchestrator.translate import KnownReplica
from stagemesh.api.admin.v1 import admin_service_pb2
from stagemesh.api.types.v1 import link_pb2

NO_CONTEXT: Any = None


class Shown:
    """A core with one replica on link 3."""

    requests_open = 4

    def replica_views(self) -> list[ReplicaView]:
        """Show it."""
        return [
            ReplicaView(
                link=3,
                pool="thinker",
                replica_id="thinker-1",
                incarnation=1,
                state=WorkerState.DRAINING,
                usable=False,
                listed=True,
                slots=1,
                in_flight=1,
            )
        ]


def known(pool: str, replica_id: str, link: int = 0) -> KnownReplica:
    return KnownReplica(pool=pool, replica_id=replica_id, address="a", link=link)


async def listed(*pools: str) -> admin_service_pb2.ListReplicasResponse:
    servicer = AdminServicer(
        Shown(),
        lambda: [
            known("thinker", "thinker-1", 3),
            known("talker", "talker-0"),
            known("thinker", "thinker-0"),
        ],
        lambda: link_pb2.Hello(id="o-0"),
    )
    return await servicer.ListReplicas(
        admin_service_pb2.ListReplicasRequest(pools=pools), NO_CONTEXT
    )


async def test_replicas_are_listed_in_order_with_the_cores_view_of_each() -> None:
    answer = await listed()

    assert [(one.replica_id, one.inflight) for one in answer.replicas] == [
        ("talker-0", 0),
        ("thinker-0", 0),
        ("thinker-1", 1),
    ]
    assert answer.replicas[2].state == link_pb2.PROCESS_STATE_DRAINING
    assert (answer.orchestrator.id, answer.requests_open) == ("o-0", 4)


async def test_only_the_pools_that_are_named_are_listed() -> None:
    assert [one.replica_id for one in (await listed("talker")).replicas] == ["talker-0"]
