"""Converses with a mesh: input piece by piece, outputs as they come."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from grpc import aio

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import media_pb2
from stagemesh.errors import MeshError
from stagemesh.media import AUDIO_PCM, Modality, Request
from stagemesh.outcome import End, ErrorInfo, Terminal
from stagemesh.rpc import error_of, open_channel
from stagemesh.wire import (
    end_from_proto,
    error_from_proto,
    modality_from_proto,
    request_terminal_from_proto,
    request_to_proto,
)

__all__ = ["ChangedPrompt", "Conversation", "ConversedOutput", "converse"]

_APPEND_BYTES_MAX: Final = 1024 * 1024
"""Of one message of ours; what is larger goes in several."""

_Step = orchestrator_service_pb2.ConverseRequest


class ConversedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a result: it covers `[pos, pos + units)` of its stage's lane.

    `more` says that more bytes of the same item follow. `segment_end` marks the last piece of what
    was made of one segment of the input, `end` the last piece of all.
    """

    stage: str
    choice: int
    modality: Modality
    pos: int
    units: int
    text: str
    data: bytes
    more: bool
    segment_end: bool
    end: End | None


class ChangedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of another prompt: from which position of a stage's outputs on, or why not."""

    interaction_id: str
    stage: str
    applied_at: int
    error: ErrorInfo | None


class Conversation:
    """One running request. Appends wait while the mesh takes no more; outputs are iterated over."""

    def __init__(self, call: "aio.StreamStreamCall[Any, Any]") -> None:
        self._call = call
        self._closed = False
        self._writing = asyncio.Lock()
        self.terminal: Terminal | None = None
        """Set once the outputs have ended."""
        self.prompts: dict[str, ChangedPrompt] = {}
        """What became of each change of the prompt, by its id, once it is known."""

    async def append_text(self, text: str) -> None:
        """Give more text.

        Raises:
            MeshError: If the request has ended in an error.
        """
        append = orchestrator_service_pb2.Append(text=text)
        await self._write(_Step(append=append))

    async def append_audio(
        self,
        data: bytes,
        *,
        sample_rate_hz: int = 24_000,
        channels: int = 1,
        media_type: str = AUDIO_PCM,
    ) -> None:
        """Give more audio; pieces up to a segment's end are one recording.

        Raises:
            MeshError: If the request has ended in an error.
        """
        for at in range(0, len(data), _APPEND_BYTES_MAX):
            audio = media_pb2.Body(
                inline=data[at : at + _APPEND_BYTES_MAX],
                media_type=media_type,
                sample_rate_hz=sample_rate_hz,
                channels=0 if channels == 1 else channels,
            )
            append = orchestrator_service_pb2.Append(audio=audio)
            await self._write(_Step(append=append))

    async def end_segment(self) -> None:
        """Say that a segment is complete: a sentence, or what was said in one turn.

        Raises:
            MeshError: If the request has ended in an error.
        """
        await self._write(_Step(segment_end=orchestrator_service_pb2.SegmentEnd()))

    async def interact(self, interaction_id: str, text: str) -> None:
        """Give another prompt for what is being made; what becomes of it is in `prompts`.

        Raises:
            MeshError: If the request has ended in an error.
        """
        change = orchestrator_service_pb2.PromptChange(interaction_id=interaction_id, text=text)
        await self._write(_Step(interact=change))

    async def close_input(self) -> None:
        """Say that no more comes; once is enough.

        Raises:
            MeshError: If the request has ended in an error.
        """
        if not self._closed:
            self._closed = True
            await self._write(_Step(close=orchestrator_service_pb2.CloseInput()))

    def cancel(self) -> None:
        """Abort the request."""
        self._call.cancel()

    async def outputs(self) -> AsyncIterator[ConversedOutput]:
        """Give everything that the mesh says, to the end.

        Raises:
            MeshError: If the request ends in an error.
        """
        try:
            async for response in self._call:
                for changed in response.interactions:
                    self.prompts[changed.interaction_id] = _changed_of(changed)
                for output in response.outputs:
                    yield _output_of(output)
                if response.HasField("terminal"):
                    self.terminal = request_terminal_from_proto(response.terminal)
        except aio.AioRpcError as error:
            raise MeshError(error_of(error)) from error

    async def _write(self, step: _Step) -> None:
        async with self._writing:
            try:
                await self._call.write(step)
            except aio.AioRpcError as error:
                raise MeshError(error_of(error)) from error
            except asyncio.InvalidStateError:
                pass  # The request is over, and what was said of it is among its outputs.


@asynccontextmanager
async def converse(
    address: str, request: Request, *, timeout_s: float | None = None
) -> AsyncIterator[Conversation]:
    """Open a conversation at an orchestrator's client port; leaving the block aborts what runs.

    `timeout_s` is the request's deadline; without one it has its pipeline's.
    """
    async with open_channel(address) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        call = stub.Converse(timeout=timeout_s)
        conversation = Conversation(call)
        try:
            await call.write(_Step(open=request_to_proto(request)))
            yield conversation
        finally:
            call.cancel()


def _output_of(output: orchestrator_service_pb2.GeneratedOutput) -> ConversedOutput:
    return ConversedOutput(
        stage=output.stage,
        choice=output.choice,
        modality=modality_from_proto(output.modality),
        pos=output.pos,
        units=output.units,
        text=output.text,
        data=output.body.inline,
        more=output.more,
        segment_end=output.segment_end,
        end=end_from_proto(output.end) if output.HasField("end") else None,
    )


def _changed_of(changed: orchestrator_service_pb2.PromptChanged) -> ChangedPrompt:
    return ChangedPrompt(
        interaction_id=changed.interaction_id,
        stage=changed.stage,
        applied_at=changed.applied_at,
        error=error_from_proto(changed.error) if changed.HasField("error") else None,
    )
