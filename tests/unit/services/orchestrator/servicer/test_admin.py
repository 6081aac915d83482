"""The admin port, without a server."""

from typing import Any

from services.orchestrator.core.replicas import WorkerState
from services.orchestrator.core.views import ReplicaView, RequestView
from services.orchestrator.driver import Endings
from services.orchestrator.servicer import AdminServicer, Requests
from services.orchestrator.translate import KnownReplica
from stagemesh.api.admin.v1 import admin_service_pb2
from stagemesh.api.types.v1 import link_pb2
from tests.helpers.scripted_core import ScriptedCore, drive
from tests.helpers.shown_requests import ShownRequests

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


def requests(*views: RequestView) -> Requests:
    shown = ShownRequests(*views)
    return Requests(drive(ScriptedCore()), shown, Endings(), orchestrator_id="o-0", incarnation=3)


async def listed(*pools: str) -> admin_service_pb2.ListReplicasResponse:
    servicer = AdminServicer(
        Shown(),
        lambda: [
            known("thinker", "thinker-1", 3),
            known("talker", "talker-0"),
            known("thinker", "thinker-0"),
        ],
        lambda: link_pb2.Hello(id="o-0"),
        requests(),
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


async def test_an_operator_is_told_of_any_tenant_s_request_and_of_none_that_is_unknown() -> None:
    view = RequestView(request_id="r", model="echo", state="RUNNING", age_s=1.0, tenant="t")
    port = AdminServicer(Shown(), list, link_pb2.Hello, requests(view))
    known = await port.ExplainRequest(
        admin_service_pb2.ExplainRequestRequest(request_id="r"), NO_CONTEXT
    )
    unknown = await port.ExplainRequest(
        admin_service_pb2.ExplainRequestRequest(request_id="s"), NO_CONTEXT
    )
    assert known.request.state == "RUNNING"
    assert not unknown.HasField("request")
