"""What every call that runs a request is answered with: outputs, the terminal, then the status."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import msgspec
from grpc import aio

from services.orchestrator.servicer.calls import Call, Calls
from services.orchestrator.servicer.inputs import Store, adopt
from services.orchestrator.translate import GeneratedOutputs
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import request_pb2
from stagemesh.errors import MeshError
from stagemesh.ids import new_request_id
from stagemesh.link.core import Row
from stagemesh.media import Handle
from stagemesh.outcome import ErrorInfo, Outcome, Terminal, error_for, outcome_of
from stagemesh.pipeline import Mesh
from stagemesh.rpc import abort
from stagemesh.wire import request_from_proto, request_terminal_to_proto

__all__ = ["Answering", "Context", "KeepingStore", "Listening", "Reader"]

REQUEST_ID_METADATA: Final = "x-request-id"

ANSWER_S: Final = 0.05
"""What is kept of a call's time for its terminal to reach the client before the call is cut off."""

LEFTOVER_S: Final = 5.0
"""How long a client may take for what waits once its request is over; then the call is cut off.

Admission no longer counts the request, so without this a client that stops reading would keep its
call, and whoever serves it, for as long as it likes.
"""

Context = aio.ServicerContext[Any, Any]

_log = logging.getLogger(__name__)

Response = TypeVar(
    "Response",
    bound=orchestrator_service_pb2.ConverseResponse | orchestrator_service_pb2.GenerateResponse,
)

Listening = Callable[[Call], Coroutine[Any, Any, None]]
"""Hears a client that goes on to speak while it is answered; raises `MeshError` at a mistake."""


class Reader(Protocol):
    """Reads bytes by their handle, within a time of its own."""

    async def get(self, handle: Handle) -> bytes | memoryview:
        """Fetch the bytes.

        Raises:
            MeshError: If they cannot be had.
        """
        ...


class KeepingStore(Store, Protocol):
    """A store whose bytes are let go of when their request is over."""

    def release(self, request_id: str) -> object:
        """Drop what was put for a request."""
        ...


class Answering(Generic[Response]):
    """Runs requests of calls, and answers with responses of one kind."""

    def __init__(
        self,
        kind: type[Response],
        mesh: Mesh,
        calls: Calls,
        store: KeepingStore,
        reader: Reader,
    ) -> None:
        self._kind = kind
        self._calls = calls
        self._store = store
        self._reader = reader
        self._stages: Mapping[str, tuple[str, ...]] = {
            model: tuple(stage.name for stage in pipeline.stages)
            for pipeline in mesh.pipelines.values()
            for model in pipeline.model_names
        }

    async def run(
        self, request: request_pb2.Request, context: Context, listen: Listening | None = None
    ) -> AsyncIterator[Response]:
        """Serve one call: its outputs, then its terminal, then its status.

        Where the outcome is not COMPLETED the status says so too, after the message that holds the
        terminal: people see the typed cause, and tools that know only gRPC see a failure.
        """
        request_id = new_request_id()
        await context.send_initial_metadata(((REQUEST_ID_METADATA, request_id),))
        try:
            async with _Patience() as patience:
                call = self._open(request, request_id, context, patience, streamed=bool(listen))
                # Also while a write waits; the stub names a class that is missing at run time.
                context.add_done_callback(lambda _: call.leave("client_closed"))  # type: ignore[arg-type]
                stages = self._stages.get(request.model, ())
                outputs = GeneratedOutputs(stages, request.choices or 1)
                with _Ear(call, listen) as ear:
                    answer = _Answer(self._kind, call, outputs, self._reader, ear)
                    async for response in answer.responses():
                        yield response
                terminal = answer.terminal
        except TimeoutError:
            terminal = Terminal(outcome=Outcome.FAILED, error=error_for("slow_consumer"))
        except MeshError as error:
            self._store.release(request_id)
            terminal = _refusal(error.info)
            yield self._kind(terminal=request_terminal_to_proto(terminal))
        await self._say(context, terminal)

    async def refuse(self, error: ErrorInfo, context: Context) -> AsyncIterator[Response]:
        """Answer a call that comes to no request."""
        terminal = _refusal(error)
        yield self._kind(terminal=request_terminal_to_proto(terminal))
        await self._say(context, terminal)

    @staticmethod
    async def _say(context: Context, terminal: Terminal) -> None:
        if terminal.outcome is not Outcome.COMPLETED:
            info = terminal.error or error_for("internal_error")
            await abort(context, info, outcome=terminal.outcome)

    def _open(
        self,
        request: request_pb2.Request,
        request_id: str,
        context: Context,
        patience: "_Patience",
        *,
        streamed: bool,
    ) -> Call:
        def ended() -> None:
            self._store.release(request_id)
            patience.begin()

        adopt(request, request_id, self._store)
        return self._calls.open(
            request_id=request_id,
            deadline_left_s=_deadline_left_s(context),
            request=request_from_proto(request),
            body=request,
            ended=ended,
            streamed=streamed,
        )


class _Ear:
    """Listens to a client for as long as a block lasts; a mistake of the client ends its call."""

    def __init__(self, call: Call, listen: Listening | None) -> None:
        self.error: ErrorInfo | None = None
        self._call = call
        self._listen = listen
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if self._listen is not None:
            self._task = asyncio.create_task(self._run(self._listen), name="listen")
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, listen: Listening) -> None:
        try:
            await listen(self._call)
        except MeshError as error:
            self.error = error.info
            self._call.leave("bad_input")
        except Exception:  # In a task nobody would hear of it, and the call would wait for input.
            _log.exception("listening_failed")
            self.error = error_for("internal_error")
            self._call.leave("internal_error")


class _Patience:
    """A block that may take as long as it likes, until `begin`; then it has `LEFTOVER_S`.

    Raises:
        TimeoutError: Out of the block, if it takes longer.
    """

    def __init__(self) -> None:
        self._limit: asyncio.Timeout | None = None

    async def __aenter__(self) -> Self:
        self._limit = asyncio.timeout(None)
        await self._limit.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            await limit.__aexit__(*error)

    def begin(self) -> None:
        """Start the time; after the block it means nothing."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + LEFTOVER_S)


class _Answer(Generic[Response]):
    """What one call is told; `terminal` counts once `responses` has ended."""

    def __init__(
        self,
        kind: type[Response],
        call: Call,
        outputs: GeneratedOutputs,
        reader: Reader,
        ear: _Ear,
    ) -> None:
        self.terminal = Terminal(outcome=Outcome.FAILED)
        self._ear = ear
        self._kind = kind
        self._call = call
        self._outputs = outputs
        self._reader = reader
        self._lost: ErrorInfo | None = None

    async def responses(self) -> AsyncIterator[Response]:
        """Give everything, as fast as it is written: all that waits goes in one response."""
        done = False
        while not done:
            rows, terminal = await self._call.take()
            response = self._kind()
            for row in rows:
                if row.body is None or row.body.handle is None:
                    response.outputs.append(self._outputs.whole(row))
                    continue
                if response.outputs:
                    yield response
                    response = self._kind()
                async for piece in self._fetched(row, row.body.handle):
                    yield piece
            for answer in self._call.take_answers():
                self._outputs.answer(response, answer)
            if terminal is not None:
                done = True
                self._end(terminal)
                response.terminal.CopyFrom(request_terminal_to_proto(self.terminal))
            if response.outputs or response.ByteSize() or done:
                yield response
            self._call.wrote(rows)

    async def _fetched(self, row: Row, handle: Handle) -> AsyncIterator[Response]:
        try:
            data = await self._reader.get(handle)
        except MeshError as error:
            self._lost = error.info
            self._call.lost_handle(handle.handle_id)
            return
        for output in self._outputs.pieces(row, memoryview(data)):
            yield self._kind(outputs=[output])

    def _end(self, terminal: Terminal) -> None:
        """Take the core's terminal, unless it is known here what it does not say.

        Bytes that it counts as given could not be fetched, or it was aborted for a mistake.
        """
        lost = self._lost
        if self._ear.error is not None:
            terminal = _refusal(self._ear.error)
        if lost is not None and terminal.outcome is Outcome.COMPLETED:
            terminal = msgspec.structs.replace(terminal, outcome=Outcome.FAILED, error=lost)
        self.terminal = terminal


def _refusal(error: ErrorInfo) -> Terminal:
    return Terminal(outcome=outcome_of(error.code), error=error)


def _deadline_left_s(context: Context) -> float:
    """How long a request may take; 0 where the call has no deadline of its own."""
    left_s: float | None = context.time_remaining()  # The stub does not know of None.
    if left_s is None:
        return 0.0
    return max(left_s - ANSWER_S, left_s / 2)
