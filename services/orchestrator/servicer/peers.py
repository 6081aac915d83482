"""`PeerService`: what other orchestrators ask this one. It never asks on."""

from typing import Any

from grpc import aio

from services.orchestrator.servicer.pages import PAGE_MAX
from services.orchestrator.servicer.requests import Requests
from stagemesh.api.orchestrator.v1 import peer_service_pb2, peer_service_pb2_grpc

__all__ = ["PeerServicer"]


class PeerServicer(peer_service_pb2_grpc.PeerServiceServicer):
    """Serves the link port, which clients do not reach."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def EndRequest(  # noqa: N802
        self,
        request: peer_service_pb2.EndRequestRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> peer_service_pb2.EndRequestResponse:
        """End a request that runs here, or refuse it if it comes."""
        del context
        return await self._requests.end(
            request.request_id, request.tenant, partials=request.partials
        )

    async def ShowRequest(  # noqa: N802
        self,
        request: peer_service_pb2.ShowRequestRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> peer_service_pb2.ShowRequestResponse:
        """Show a request as it stands here."""
        del context
        shown = self._requests.show(request.request_id, request.tenant)
        return peer_service_pb2.ShowRequestResponse(request=shown)

    async def ShowRequests(  # noqa: N802
        self,
        request: peer_service_pb2.ShowRequestsRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> peer_service_pb2.ShowRequestsResponse:
        """Show the requests that match."""
        del context
        request.count = min(request.count, PAGE_MAX)
        return self._requests.list(request)
