"""`POST /v1/audio/speech`: OpenAI's body to the internal request."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import msgspec

from services.gateway.core.requests.decoding import (
    NOTHING,
    Body,
    Unserved,
    decode_json,
    refuse_unserved,
)
from services.gateway.core.requests.origin import Origin, Voice, model_name, voice_name
from services.gateway.core.requests.tuning import StageParams, read_stage_params
from stagemesh.errors import invalid, unsupported
from stagemesh.media import AudioParams, Message, Modality, Params, Request, TextPart

__all__ = ["SPEECH_EXTENSIONS", "SPEECH_UNSERVED", "SpeechBody", "SpeechOrder", "read_speech"]

SPEECH_EXTENSIONS: Final = ("seed", "stage_params", "stream")
"""Fields of the body that are ours: `stream` sends a wav, too, as it is made."""

SPEECH_UNSERVED: Final[dict[str, tuple[Any, ...]]] = {"instructions": ("",)}

FORMATS: Final = ("wav", "pcm")


class SpeechBody(Body, frozen=True):
    """The body as OpenAI writes it, with our extensions last."""

    model: str
    input: str
    voice: Voice | None = None
    response_format: str | None = None
    speed: float | None = None
    stream_format: Literal["audio", "sse"] | None = None
    instructions: Unserved = NOTHING
    seed: int | None = None
    stage_params: StageParams | None = None
    stream: bool | None = None


class SpeechOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A speech request, and how its answer is to be written."""

    request: Request
    names: ClassVar[Mapping[str, str]] = {"messages": "input"}
    """What this body calls the fields that errors may name, where it differs."""
    format: str
    """`wav` or `pcm`."""
    stream: bool
    events: bool
    """As server-sent events with base64 inside, not as plain bytes."""


_DECODER: Final = msgspec.json.Decoder(SpeechBody)


def read_speech(raw: bytes | bytearray, origin: Origin) -> SpeechOrder:
    """Turn a body into the internal request.

    Raw samples are streamed unless `stream` is false; a wav is whole, with its sizes, unless it is
    true. OpenAI's own default, mp3, is not made here: without a format the answer is a wav.

    Raises:
        MeshError: If the body is not what OpenAI allows, or asks for what is not served.
    """
    body = decode_json(_DECODER, raw)
    refuse_unserved(body, SPEECH_UNSERVED)
    audio_format = body.response_format or FORMATS[0]
    if audio_format not in FORMATS:
        raise unsupported(
            f"Speech is given as {' or '.join(FORMATS)} here, not as '{audio_format}'.",
            param="response_format",
        )
    if not body.input:
        raise invalid("'input' is empty.", param="input")
    events = body.stream_format == "sse"
    request = Request(
        model=model_name(body.model),
        messages=(Message(role="user", parts=(TextPart(body.input),)),),
        modalities=(Modality.AUDIO,),
        params=Params(audio=AudioParams(voice=voice_name(body.voice, "voice"), speed=body.speed)),
        stage_params=read_stage_params(body.stage_params),
        seed=origin.seed if body.seed is None else body.seed % 2**64,
        seed_explicit=body.seed is not None,
        label=origin.label,
    )
    streamed = events or (audio_format == "pcm" if body.stream is None else body.stream)
    return SpeechOrder(request=request, format=audio_format, stream=streamed, events=events)
