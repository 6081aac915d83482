"""The body of `Converse`: one call whose client goes on to speak while it is answered."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

from services.orchestrator.servicer.answers import Answering, Context, KeepingStore, Reader
from services.orchestrator.servicer.calls import Call, Calls
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import media_pb2, request_pb2
from stagemesh.errors import MeshError, invalid
from stagemesh.media import INLINE_BYTES_MAX, SAMPLE_BYTES, Body
from stagemesh.pipeline import Mesh
from stagemesh.wire import body_from_proto

__all__ = ["Conversations"]

PIECE_CHARS_MAX: Final = INLINE_BYTES_MAX // 4
"""So that a piece of any text is at most `INLINE_BYTES_MAX` in UTF-8."""

_GIVES: Final = frozenset({"append", "segment_end", "close"})

Step = orchestrator_service_pb2.ConverseRequest
Response = orchestrator_service_pb2.ConverseResponse


class Conversations:
    """Serves `Converse` calls."""

    def __init__(self, mesh: Mesh, calls: Calls, store: KeepingStore, reader: Reader) -> None:
        self._answering = Answering(Response, mesh, calls, store, reader)

    async def run(self, steps: AsyncIterator[Step], context: Context) -> AsyncIterator[Response]:
        """Serve one call; see `Answering.run`. Its input is read as fast as it is taken."""

        async def listen(call: Call) -> None:
            await _listen(steps, call)

        try:
            request = await _opening(steps)
        except MeshError as error:
            answer = self._answering.refuse(error.info, context)
        else:
            answer = self._answering.run(request, context, listen)
        async for response in answer:
            yield response


async def _opening(steps: AsyncIterator[Step]) -> request_pb2.Request:
    """Read the first step.

    Raises:
        MeshError: If it is no request.
    """
    first = await anext(steps, None)
    if first is None or not first.HasField("open"):
        raise invalid(
            "The first message must hold the request.",
            param="open",
            reason="missing_required_parameter",
        )
    return first.open


async def _listen(steps: AsyncIterator[Step], call: Call) -> None:
    """Give a call what its client says, until that closes its side of the stream.

    Raises:
        MeshError: If a step makes no sense.
    """
    closed = False
    async for step in steps:
        kind = step.WhichOneof("step")
        if closed and kind in _GIVES:
            raise invalid("The input was closed before.", param=kind)
        match kind:
            case "append":
                for text, audio in _pieces(step.append):
                    await call.room()
                    call.append(text, audio)
            case "segment_end":
                await call.room()
                call.append(segment_end=True)
            case "interact":
                await call.told()
                call.interact(step.interact.interaction_id, step.interact.text)
            case "close":
                closed = True
                call.close_input()
            case "open":
                raise invalid("A conversation is opened once.", param="open")
            case _:
                raise invalid("A message must hold one step.", param="step")
    if not closed:
        call.close_input()


def _pieces(append: orchestrator_service_pb2.Append) -> Iterator[tuple[str, Body | None]]:
    """Cut an append so that each piece travels inline; samples of raw audio stay whole."""
    match append.WhichOneof("content"):
        case "text" if append.text:
            for at in range(0, len(append.text), PIECE_CHARS_MAX):
                yield append.text[at : at + PIECE_CHARS_MAX], None
        case "audio" if append.audio.inline:
            yield from (("", body) for body in _bodies(append.audio))
        case _:
            raise invalid(
                "There must be some text or audio, and audio as bytes.",
                param="append",
                reason="missing_required_parameter",
            )


def _bodies(audio: media_pb2.Body) -> Iterator[Body]:
    data = audio.inline
    channels = audio.channels or 1
    if channels > INLINE_BYTES_MAX // SAMPLE_BYTES:
        raise invalid(f"There may not be {channels} channels.", param="append.audio.channels")
    size = INLINE_BYTES_MAX - INLINE_BYTES_MAX % (SAMPLE_BYTES * channels)
    for at in range(0, len(data), size):
        audio.inline = data[at : at + size]
        yield body_from_proto(audio)
