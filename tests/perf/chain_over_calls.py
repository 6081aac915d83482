"""The chain over calls: one server-streaming call for each request on both hops."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import request_pb2
from tests.perf.chain_engine import WINDOW_UNITS, WORDS, Streams

__all__ = ["CallsRelay", "CallsSink", "CallsWorker"]

GenerateResponse = orchestrator_service_pb2.GenerateResponse
GenerateRequest = orchestrator_service_pb2.GenerateRequest


class CallsWorker(orchestrator_service_pb2_grpc.OrchestratorServiceServicer):
    """Runs a stream for each call, with a queue of one window before its writer."""

    def __init__(self, streams: Streams, words: list[str]) -> None:
        self._streams = streams
        self._words = words
        self._open: dict[object, tuple[deque[int], asyncio.Event, list[int]]] = {}
        streams.step = self._step

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Serve one request."""
        key = object()
        queue, ready = deque[int](), asyncio.Event()
        self._open[key] = (queue, ready, [0])
        self._streams.wake.set()
        try:
            while True:
                await ready.wait()
                ready.clear()
                while queue:
                    pos = queue.popleft()
                    self._streams.wake.set()
                    response = GenerateResponse()
                    response.outputs.add(
                        stage="thinker", modality=1, pos=pos, units=1, text=self._words[pos % WORDS]
                    )
                    yield response
        finally:
            del self._open[key]

    def _step(self) -> bool:
        moved = False
        for queue, ready, made in self._open.values():
            if len(queue) < WINDOW_UNITS:
                queue.append(made[0])
                made[0] += 1
                ready.set()
                moved = True
        return moved

    Abort = Converse = GetRequest = ListModels = ListRequests = None  # type: ignore[assignment]


class CallsRelay(orchestrator_service_pb2_grpc.OrchestratorServiceServicer):
    """Calls the worker once for each request, checks every output and hands it on."""

    def __init__(self, stub: orchestrator_service_pb2_grpc.OrchestratorServiceStub) -> None:
        self._stub = stub

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Serve one request."""
        call = self._stub.Generate(request)
        next_pos = 0
        try:
            async for response in call:
                for output in response.outputs:
                    if output.pos != next_pos:
                        raise AssertionError(f"{output.pos} after {next_pos}")
                    next_pos += output.units
                yield response
        finally:
            call.cancel()

    Abort = Converse = GetRequest = ListModels = ListRequests = None  # type: ignore[assignment]


class CallsSink:
    """Opens calls, checks and counts what comes."""

    def __init__(self) -> None:
        self.tokens = 0
        self.messages = 0

    async def run(self, stub: orchestrator_service_pb2_grpc.OrchestratorServiceStub) -> None:
        """Read one call for ever."""
        call = stub.Generate(GenerateRequest(request=request_pb2.Request(model="bench")))
        next_pos = 0
        try:
            async for response in call:
                for output in response.outputs:
                    if output.pos != next_pos:
                        raise AssertionError(f"{output.pos} after {next_pos}")
                    next_pos += output.units
                    self.tokens += output.units
                self.messages += 1
        finally:
            call.cancel()
