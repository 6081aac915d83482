"""`OrchestratorService`: the client port."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol

from grpc import aio

from services.orchestrator.core.events import RequestAbortAsked
from services.orchestrator.core.views import RequestView
from services.orchestrator.driver import Driver
from services.orchestrator.servicer.converse import Conversations
from services.orchestrator.servicer.generate import Generation
from services.orchestrator.translate import request_view_to_proto
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.outcome import error_for
from stagemesh.rpc import abort

__all__ = ["OrchestratorServicer", "RequestViews"]

Context = aio.ServicerContext[Any, Any]

_DONE: Final = "DONE"


class RequestViews(Protocol):
    """Shows requests, also for a while after their end."""

    def request_view(self, request_id: str) -> RequestView | None:
        """Show one, if it is known."""
        ...


class OrchestratorServicer(orchestrator_service_pb2_grpc.OrchestratorServiceServicer):
    """Serves gRPC clients. Method names and shapes are those of the service definition."""

    def __init__(
        self,
        generation: Generation,
        conversations: Conversations,
        driver: Driver,
        views: RequestViews,
        models: Callable[[], Sequence[link_pb2.PublishedPipeline]],
    ) -> None:
        self._generation = generation
        self._conversations = conversations
        self._driver = driver
        self._views = views
        self._models = models

    async def Generate(  # noqa: N802
        self, request: orchestrator_service_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[orchestrator_service_pb2.GenerateResponse]:
        """Run one request."""
        async for response in self._generation.run(request.request, context):
            yield response

    async def Converse(  # noqa: N802
        self,
        request_iterator: AsyncIterator[orchestrator_service_pb2.ConverseRequest],
        context: Context,
    ) -> AsyncIterator[orchestrator_service_pb2.ConverseResponse]:
        """Run one request whose input comes piece by piece."""
        async for response in self._conversations.run(request_iterator, context):
            yield response

    async def Abort(  # noqa: N802
        self, request: orchestrator_service_pb2.AbortRequest, context: Context
    ) -> orchestrator_service_pb2.AbortResponse:
        """End a running request; one that is not running here is no error."""
        del context
        view = self._views.request_view(request.request_id)
        running = view is not None and view.state != _DONE
        if running:
            self._driver.post(
                RequestAbortAsked(request_id=request.request_id, cause="client_asked")
            )
        return orchestrator_service_pb2.AbortResponse(aborted=running)

    async def GetRequest(  # noqa: N802
        self, request: orchestrator_service_pb2.GetRequestRequest, context: Context
    ) -> orchestrator_service_pb2.GetRequestResponse:
        """Tell how a request stands; NOT_FOUND once it is forgotten."""
        view = self._views.request_view(request.request_id)
        if view is None:
            await abort(context, error_for("request_not_found", param="request_id"))
        return request_view_to_proto(view)

    async def ListModels(  # noqa: N802
        self, request: orchestrator_service_pb2.ListModelsRequest, context: Context
    ) -> orchestrator_service_pb2.ListModelsResponse:
        """List the models, and whether each can be served now."""
        del request, context
        return orchestrator_service_pb2.ListModelsResponse(models=self._models())
