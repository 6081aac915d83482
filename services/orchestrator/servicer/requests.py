"""What this orchestrator itself knows of requests, and does to them, for whoever asks.

Clients and operators ask here, and other orchestrators through `PeerService`. Nothing in this
module asks anybody else.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from services.orchestrator.core.events import RequestAbortAsked
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.views import RequestQuery, RequestView
from services.orchestrator.driver import Driver, Endings
from services.orchestrator.translate import request_summary_to_proto, request_view_to_proto
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.orchestrator.v1 import peer_service_pb2
from stagemesh.wire import request_terminal_to_proto

__all__ = ["ANY_TENANT", "RequestViews", "Requests"]

ACK_S: Final = 0.8
"""How long an abort waits for the stages: less than the second that whoever asks may wait."""

ANY_TENANT: Final = ""
"""An operator's."""


class RequestViews(Protocol):
    """Shows requests, also for a while after their end."""

    def request_view(self, request_id: str) -> RequestView | None:
        """Show one, if it is known."""
        ...

    def request_views(self, query: RequestQuery) -> Sequence[RequestView]:
        """Show those that match, the ones opened last first."""
        ...


class Requests:
    """The requests of this orchestrator; other tenants' are as good as unknown."""

    def __init__(
        self,
        driver: Driver,
        views: RequestViews,
        endings: Endings,
        *,
        orchestrator_id: str,
        incarnation: int,
    ) -> None:
        self._driver = driver
        self._views = views
        self._endings = endings
        self._orchestrator_id = orchestrator_id
        self._incarnation = incarnation

    async def end(
        self, request_id: str, tenant: str, *, partials: bool
    ) -> peer_service_pb2.EndRequestResponse:
        """End a request and wait for its stages; one that is not known is refused if it comes."""
        before = self._view(request_id, tenant)
        running = before is not None and before.terminal is None
        self._driver.post(
            RequestAbortAsked(
                request_id=request_id, cause="client_asked", tenant=tenant, partials=partials
            )
        )
        if before is None:
            return peer_service_pb2.EndRequestResponse(answer=pb.AbortResponse())
        if running and self._open(request_id, tenant):
            await self._endings.wait(request_id, ACK_S)
        now = self._view(request_id, tenant)
        answer = pb.AbortResponse(
            aborted=running, state=RequestState.DONE.name if now is None else now.state
        )
        if now is not None:
            answer.unconfirmed_stages.extend(now.unconfirmed)
            if now.terminal is not None:
                answer.terminal.CopyFrom(request_terminal_to_proto(now.terminal))
        return peer_service_pb2.EndRequestResponse(epoch=max(1, before.epoch), answer=answer)

    def show(self, request_id: str, tenant: str) -> pb.GetRequestResponse | None:
        """Show a request, if it is known."""
        view = self._view(request_id, tenant)
        return None if view is None else request_view_to_proto(view, self._orchestrator_id)

    def list(
        self, request: peer_service_pb2.ShowRequestsRequest
    ) -> peer_service_pb2.ShowRequestsResponse:
        """Show the requests that match, after the mark of this incarnation if there is one."""
        marks = {mark.incarnation: mark.before for mark in request.marks}
        query = RequestQuery(
            tenant=request.tenant,
            count=request.count,
            state=request.state,
            model=request.model,
            before=marks.get(self._incarnation, 0),
        )
        now_s = asyncio.get_running_loop().time()
        return peer_service_pb2.ShowRequestsResponse(
            requests=[
                request_summary_to_proto(view, self._orchestrator_id, now_s)
                for view in self._views.request_views(query)
            ],
            orchestrator_id=self._orchestrator_id,
            incarnation=self._incarnation,
        )

    def _open(self, request_id: str, tenant: str) -> bool:
        view = self._view(request_id, tenant)
        return view is not None and view.terminal is None

    def _view(self, request_id: str, tenant: str) -> RequestView | None:
        view = self._views.request_view(request_id)
        if view is None or tenant not in (ANY_TENANT, view.tenant):
            return None
        return view
