"""`chat`: the conversation of the request, with speech replaced by what was heard."""

from typing import ClassVar, Final

import msgspec

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed
from services.stage_worker.engines.base import ChatInput, EngineInput
from stagemesh.errors import unsupported
from stagemesh.media import MediaPart, Message, Modality, OutputKind, Part, TextPart

__all__ = ["ChatBridge", "create"]


class ChatBridge:
    """Gives one `ChatInput`, once every source has ended.

    The text of the sources takes the place of the audio in the last message that has any; without
    audio it becomes a message of the user. Other media are beyond the models behind this bridge.
    """

    reads_media: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self._messages = context.request.messages
        self._open = {source.lane for source in context.sources}
        self._listens = bool(context.sources)
        self._heard: list[str] = []
        self.complete = False

    def start(self) -> list[EngineInput]:
        """Give the conversation, if nothing else is to come."""
        return self._finish() if not self._open else []

    def feed(self, fed: Fed) -> list[EngineInput]:
        """Take a piece of what was heard."""
        if fed.body is not None:
            raise unsupported(
                "this model cannot read audio", param="append", reason="unsupported_modality"
            )
        if fed.kind is OutputKind.TEXT:
            self._heard.append(fed.text)
        if fed.last:
            self._open.discard(fed.source.lane)
        return self._finish() if not self._open else []

    def _finish(self) -> list[EngineInput]:
        self.complete = True
        messages = self._messages
        if self._listens:
            messages = _spoken_replaced(messages, "".join(self._heard).strip())
        return [ChatInput(messages=_readable(messages))]


def _spoken_replaced(messages: tuple[Message, ...], heard: str) -> tuple[Message, ...]:
    """Put what was heard where it was said."""
    said_at = max((i for i, message in enumerate(messages) if _speech(message)), default=None)
    if said_at is None:
        return (*messages, Message(role="user", parts=(TextPart(heard),))) if heard else messages
    message = messages[said_at]
    spoken = _speech(message)[-1]
    parts: tuple[Part, ...] = tuple(
        TextPart(heard) if part is spoken else part for part in message.parts
    )
    replaced = msgspec.structs.replace(message, parts=parts)
    return (*messages[:said_at], replaced, *messages[said_at + 1 :])


def _readable(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Let through a conversation that is text only.

    Raises:
        MeshError: With `UNSUPPORTED` and the client's field, if media are left in it.
    """
    for message in messages:
        for part in message.parts:
            if isinstance(part, MediaPart):
                raise unsupported(
                    f"this model cannot read {part.modality.name.lower()}",
                    param=part.param,
                    reason="unsupported_modality",
                )
    return messages


def _speech(message: Message) -> list[MediaPart]:
    return [
        part
        for part in message.parts
        if isinstance(part, MediaPart) and part.modality is Modality.AUDIO
    ]


create: Final[BridgeFactory] = ChatBridge
