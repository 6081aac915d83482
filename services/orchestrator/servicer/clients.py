"""`OrchestratorService`: the client port."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from grpc import aio

from services.orchestrator.core.moves import RequestState
from services.orchestrator.peers import Answers, Method
from services.orchestrator.servicer.converse import Conversations
from services.orchestrator.servicer.generate import Generation
from services.orchestrator.servicer.inputs import TENANT
from services.orchestrator.servicer.pages import page_of, page_size, read_token
from services.orchestrator.servicer.requests import Requests
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.orchestrator.v1 import (
    orchestrator_service_pb2_grpc,
    peer_service_pb2,
    peer_service_pb2_grpc,
)
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import invalid
from stagemesh.outcome import error_for
from stagemesh.rpc import abort

__all__ = ["Asked", "OrchestratorServicer"]

Context = aio.ServicerContext[Any, Any]
Stub = peer_service_pb2_grpc.PeerServiceStub

ID_CHARS_MAX: Final = 128

Q = TypeVar("Q")
T = TypeVar("T")


class Asked(Protocol):
    """The other orchestrators."""

    async def ask(self, method: Callable[[Stub], Method[Q, T]], question: Q) -> Answers[T]:
        """Put a question to a method of all of them at once."""
        ...


class OrchestratorServicer(orchestrator_service_pb2_grpc.OrchestratorServiceServicer):
    """Serves gRPC clients. Method names and shapes are those of the service definition."""

    def __init__(
        self,
        generation: Generation,
        conversations: Conversations,
        requests: Requests,
        peers: Asked,
        models: Callable[[], Sequence[link_pb2.PublishedPipeline]],
    ) -> None:
        self._generation = generation
        self._conversations = conversations
        self._requests = requests
        self._peers = peers
        self._models = models
        # Aborts go on when whoever asked has left; each of them ends within a second.
        self._aborts: set[asyncio.Task[pb.AbortResponse]] = set()

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Run one request."""
        async for response in self._generation.run(request.request, context):
            yield response

    async def Converse(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.ConverseRequest],
        context: Context,
    ) -> AsyncIterator[pb.ConverseResponse]:
        """Run one request whose input comes piece by piece."""
        async for response in self._conversations.run(request_iterator, context):
            yield response

    async def Abort(  # noqa: N802
        self, request: pb.AbortRequest, context: Context
    ) -> pb.AbortResponse:
        """End a running request; one that is not running anywhere is no error.

        Every orchestrator is told, also where one has it: it may be on its way to another. Who asks
        and does not wait for the answer has asked all the same.
        """
        del context
        aborting = asyncio.create_task(self._abort(request), name="abort")
        self._aborts.add(aborting)
        aborting.add_done_callback(self._aborts.discard)
        return await asyncio.shield(aborting)

    async def _abort(self, request: pb.AbortRequest) -> pb.AbortResponse:
        request_id = _checked_id(request.request_id)
        question = peer_service_pb2.EndRequestRequest(
            request_id=request_id, tenant=TENANT, partials=request.partials
        )
        here, there = await asyncio.gather(
            self._requests.end(request_id, TENANT, partials=request.partials),
            self._peers.ask(lambda stub: stub.EndRequest, question),
        )
        last = max((here, *there.given), key=lambda answer: answer.epoch)
        response = pb.AbortResponse()
        response.CopyFrom(last.answer)
        response.unanswered.extend(there.unanswered)
        return response

    async def GetRequest(  # noqa: N802
        self, request: pb.GetRequestRequest, context: Context
    ) -> pb.GetRequestResponse:
        """Tell how a request stands; NOT_FOUND once it is forgotten."""
        request_id = _checked_id(request.request_id)
        question = peer_service_pb2.ShowRequestRequest(request_id=request_id, tenant=TENANT)
        there = await self._peers.ask(lambda stub: stub.ShowRequest, question)
        shown = [answer.request for answer in there.given if answer.HasField("request")]
        here = self._requests.show(request_id, TENANT)
        if here is not None:
            shown.append(here)
        if not shown:
            await abort(context, error_for("request_not_found", param="request_id"))
        return max(shown, key=lambda one: one.epoch)

    async def ListRequests(  # noqa: N802
        self, request: pb.ListRequestsRequest, context: Context
    ) -> pb.ListRequestsResponse:
        """List requests of all orchestrators, those opened last first."""
        del context
        marks, size = read_token(request.page_token), page_size(request.page_size)
        _check_state(request.state)
        question = peer_service_pb2.ShowRequestsRequest(
            tenant=TENANT, state=request.state, model=request.model, count=size
        )
        for mark in marks.values():
            question.marks.add(incarnation=mark.incarnation, before=mark.before)
        there = await self._peers.ask(lambda stub: stub.ShowRequests, question)
        page, token = page_of((self._requests.list(question), *there.given), marks, size)
        return pb.ListRequestsResponse(
            requests=page, next_page_token=token, unanswered=there.unanswered
        )

    async def ListModels(  # noqa: N802
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """List the models, and whether each can be served now."""
        del request, context
        return pb.ListModelsResponse(models=self._models())


def _check_state(state: str) -> None:
    """Look whether a state is one, or none.

    Raises:
        MeshError: If it is another word.
    """
    if state and state not in RequestState.__members__:
        known = ", ".join(RequestState.__members__)
        raise invalid(f"Must be one of {known}.", param="state")


def _checked_id(request_id: str) -> str:
    """Give a request id back.

    Raises:
        MeshError: If it is empty, or too long to be one.
    """
    if not 0 < len(request_id) <= ID_CHARS_MAX:
        raise invalid(f"Must have 1 to {ID_CHARS_MAX} characters.", param="request_id")
    return request_id
