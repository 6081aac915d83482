"""What a chat message may contain, and its reading into parts."""

import re
from typing import Any, Final, Literal

import msgspec

from services.gateway.core.requests.decoding import (
    NOTHING,
    Body,
    Unserved,
    decode_base64,
    refuse_unserved,
)
from stagemesh.errors import invalid, unsupported
from stagemesh.media import Body as MediaBody
from stagemesh.media import MediaPart, Message, Modality, Part, TextPart

__all__ = ["ChatMessage", "message_from"]

AUDIO_TYPES: Final = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_DATA_URL: Final = re.compile(r"data:(?P<type>image/[a-z0-9.+-]+);base64,", re.IGNORECASE)


class _Text(Body, frozen=True, tag_field="type", tag="text"):
    text: str


class _Refusal(Body, frozen=True, tag_field="type", tag="refusal"):
    refusal: str


class _AudioData(Body, frozen=True):
    data: str
    format: Literal["mp3", "wav"]


class _Audio(Body, frozen=True, tag_field="type", tag="input_audio"):
    input_audio: _AudioData


class _ImageUrl(Body, frozen=True):
    url: str
    detail: Literal["auto", "high", "low", "original"] | None = None


class _Image(Body, frozen=True, tag_field="type", tag="image_url"):
    image_url: _ImageUrl


class _File(Body, frozen=True, tag_field="type", tag="file"):
    file: Unserved


class _SpokenReply(Body, frozen=True):
    """An earlier reply, as the SDK gives it back; only its words are used."""

    id: str
    transcript: str | None = None
    data: str | None = None
    expires_at: int | None = None


class ChatMessage(Body, frozen=True):
    """One message as OpenAI writes it."""

    role: Literal["assistant", "developer", "function", "system", "tool", "user"]
    content: str | list[_Text | _Refusal | _Audio | _Image | _File] | None = None
    name: str | None = None
    refusal: str | None = None
    audio: _SpokenReply | None = None
    annotations: Unserved = NOTHING
    tool_calls: Unserved = NOTHING
    tool_call_id: Unserved = NOTHING
    function_call: Unserved = NOTHING


_UNSERVED: Final[dict[str, tuple[Any, ...]]] = {
    "annotations": ([],),
    "tool_calls": ([],),
    "tool_call_id": (),
    "function_call": (),
}


def message_from(message: ChatMessage, place: str) -> Message:
    """Read one message; `place` is where it stands, for example `messages[0]`.

    Raises:
        MeshError: If it asks for what is not served, or its content is missing or malformed.
    """
    if message.role in {"function", "tool"}:
        raise unsupported(
            f"Messages of the role '{message.role}' are not supported here.", param=f"{place}.role"
        )
    refuse_unserved(message, _UNSERVED, place)
    content = message.content
    if content is None:
        content = _words_of_reply(message, place)
    if isinstance(content, str):
        parts: tuple[Part, ...] = (TextPart(content),)
    else:
        if not content:
            raise invalid(f"'{place}.content' is empty.", param=f"{place}.content")
        parts = tuple(
            _part(part, message.role, f"{place}.content[{index}]")
            for index, part in enumerate(content)
        )
    return Message(role=message.role, parts=parts, name=message.name or "")


def _words_of_reply(message: ChatMessage, place: str) -> str:
    """Give the words of an assistant's message that has no content of its own."""
    if message.role == "assistant":
        if message.audio is not None and message.audio.transcript is not None:
            return message.audio.transcript
        if message.audio is not None:
            raise unsupported(
                "Spoken replies are not kept here: send the reply's transcript along.",
                param=f"{place}.audio.id",
            )
        if message.refusal is not None:
            return message.refusal
    raise invalid(
        f"Missing required parameter: '{place}.content'.",
        param=f"{place}.content",
        reason="missing_required_parameter",
    )


def _part(part: msgspec.Struct, role: str, place: str) -> Part:
    if isinstance(part, _Text):
        return TextPart(part.text)
    if isinstance(part, _Refusal):
        return TextPart(part.refusal)
    if isinstance(part, _File):
        raise unsupported("Files are not supported here.", param=f"{place}.type")
    if role != "user":
        raise invalid(
            f"Only messages of the user may contain media, not those of the {role}.",
            param=f"{place}.type",
        )
    if isinstance(part, _Audio):
        return _audio(part.input_audio, f"{place}.input_audio")
    assert isinstance(part, _Image)
    return _image(part.image_url, f"{place}.image_url")


def _audio(audio: _AudioData, place: str) -> MediaPart:
    data = decode_base64(audio.data, f"{place}.data")
    body = MediaBody(inline=data, media_type=AUDIO_TYPES[audio.format])
    return MediaPart(modality=Modality.AUDIO, body=body, param=f"{place}.data")


def _image(image: _ImageUrl, place: str) -> MediaPart:
    param = f"{place}.url"
    found = _DATA_URL.match(image.url)
    if found is None:
        if image.url[:5].lower() == "data:":
            raise invalid("A data URL must be 'data:image/…;base64,…'.", param=param)
        raise unsupported("Only data URLs are supported here; nothing is fetched.", param=param)
    body = MediaBody(
        inline=decode_base64(image.url[found.end() :], param), media_type=found["type"].lower()
    )
    return MediaPart(modality=Modality.IMAGE, body=body, param=param)
