"""`AdminService`: the admin port."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from grpc import aio

from services.orchestrator.core.views import ReplicaView
from services.orchestrator.servicer.requests import ANY_TENANT, Requests
from services.orchestrator.translate import KnownReplica, replica_to_proto
from stagemesh.api.admin.v1 import admin_service_pb2, admin_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2

__all__ = ["AdminServicer", "ReplicaViews"]


class ReplicaViews(Protocol):
    """Shows the replicas that have a link, and how much is open."""

    def replica_views(self) -> Iterable[ReplicaView]:
        """Show all of them."""
        ...

    @property
    def requests_open(self) -> int:
        """How many requests have no terminal yet."""
        ...


class AdminServicer(admin_service_pb2_grpc.AdminServiceServicer):
    """Serves operators."""

    def __init__(
        self,
        views: ReplicaViews,
        known: Callable[[], Iterable[KnownReplica]],
        hello: Callable[[], link_pb2.Hello],
        requests: Requests,
    ) -> None:
        self._requests = requests
        self._views = views
        self._known = known
        self._hello = hello

    async def ListReplicas(  # noqa: N802
        self,
        request: admin_service_pb2.ListReplicasRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> admin_service_pb2.ListReplicasResponse:
        """List the replicas of the named pools, or of all."""
        del context
        pools = set(request.pools)
        views = {view.link: view for view in self._views.replica_views()}
        return admin_service_pb2.ListReplicasResponse(
            replicas=[
                replica_to_proto(known, views.get(known.link))
                for known in sorted(self._known(), key=lambda one: (one.pool, one.replica_id))
                if not pools or known.pool in pools
            ],
            orchestrator=self._hello(),
            requests_open=self._views.requests_open,
        )

    async def ExplainRequest(  # noqa: N802
        self,
        request: admin_service_pb2.ExplainRequestRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> admin_service_pb2.ExplainRequestResponse:
        """Tell what happened to a request here, whosever it is."""
        del context
        shown = self._requests.show(request.request_id, ANY_TENANT)
        return admin_service_pb2.ExplainRequestResponse(request=shown)
