"""The body of `Generate`: one call, from its request to its terminal."""

from collections.abc import AsyncIterator

from services.orchestrator.servicer.answers import Answering, Context, KeepingStore, Reader
from services.orchestrator.servicer.calls import Calls
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import request_pb2
from stagemesh.pipeline import Mesh

__all__ = ["Generation"]

Response = orchestrator_service_pb2.GenerateResponse


class Generation:
    """Serves `Generate` calls."""

    def __init__(self, mesh: Mesh, calls: Calls, store: KeepingStore, reader: Reader) -> None:
        self._answering = Answering(Response, mesh, calls, store, reader)

    async def run(self, request: request_pb2.Request, context: Context) -> AsyncIterator[Response]:
        """Serve one call; see `Answering.run`."""
        async for response in self._answering.run(request, context):
            yield response
