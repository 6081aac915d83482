"""`POST /v1/audio/transcriptions`: a form to the internal request."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from services.gateway.core.requests.decoding import Body, convert_fields, refuse_unserved
from services.gateway.core.requests.origin import Origin, model_name
from services.gateway.core.requests.tuning import parse_stage_params
from stagemesh.errors import invalid, unsupported
from stagemesh.media import AudioParams, MediaPart, Message, Modality, Params, Request, Sampling
from stagemesh.media import Body as MediaBody

__all__ = [
    "TRANSCRIPTION_EXTENSIONS",
    "TRANSCRIPTION_UNSERVED",
    "TranscriptionBody",
    "TranscriptionOrder",
    "UploadedFile",
    "read_transcription",
]

TRANSCRIPTION_EXTENSIONS: Final = ("stage_params",)
"""Fields of the form that are ours and not OpenAI's; this one is JSON in a text."""

TRANSCRIPTION_UNSERVED: Final[dict[str, tuple[Any, ...]]] = {
    "chunking_strategy": ("auto",),
    "include": (),
    "keywords": (),
    "known_speaker_names": (),
    "known_speaker_references": (),
    "languages": (),
    "prompt": ("",),
    "stream": ("false", "False"),
    "timestamp_granularities": (),
}

FORMATS: Final = ("json", "text")

_TYPES: Final = {
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "mp4": "audio/mp4",
    "mpeg": "audio/mpeg",
    "mpga": "audio/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "webm": "audio/webm",
}


class UploadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a form; its name tells no more than a likely format."""

    name: str
    data: bytes


class TranscriptionBody(Body, frozen=True):
    """The form's fields as OpenAI writes them, but for the file."""

    model: str
    language: str | None = None
    response_format: str | None = None
    temperature: float | None = None
    chunking_strategy: Any = None
    include: Any = None
    keywords: Any = None
    known_speaker_names: Any = None
    known_speaker_references: Any = None
    languages: Any = None
    prompt: Any = None
    stream: Any = None
    timestamp_granularities: Any = None
    stage_params: str | None = None


class TranscriptionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A transcription request, and how its answer is to be written: `json` or `text`."""

    request: Request
    names: ClassVar[Mapping[str, str]] = {"messages": "file"}
    """What this body calls the fields that errors may name, where it differs."""
    format: str


def read_transcription(
    fields: Iterable[tuple[str, str]], file: UploadedFile | None, origin: Origin
) -> TranscriptionOrder:
    """Turn a form into the internal request.

    Raises:
        MeshError: If the form is not what OpenAI allows, or asks for what is not served.
    """
    body = convert_fields(
        {name.removesuffix("[]"): value for name, value in fields}, TranscriptionBody
    )
    refuse_unserved(body, TRANSCRIPTION_UNSERVED)
    answer_format = body.response_format or FORMATS[0]
    if answer_format not in FORMATS:
        raise unsupported(
            f"Transcripts are given as {' or '.join(FORMATS)} here, not as '{answer_format}'.",
            param="response_format",
        )
    if body.temperature is not None and not math.isfinite(body.temperature):
        raise invalid("'temperature' must be a finite number.", param="temperature")
    request = Request(
        model=model_name(body.model),
        messages=(Message(role="user", parts=(_audio(file),)),),
        modalities=(Modality.TEXT,),
        params=Params(
            sampling=Sampling(temperature=body.temperature),
            audio=AudioParams(language=body.language or None),
        ),
        stage_params=parse_stage_params(body.stage_params),
        seed=origin.seed,
        label=origin.label,
    )
    return TranscriptionOrder(request=request, format=answer_format)


def _audio(file: UploadedFile | None) -> MediaPart:
    if file is None:
        raise invalid(
            "Missing required parameter: 'file'.", param="file", reason="missing_required_parameter"
        )
    if not file.data:
        raise invalid("'file' is empty.", param="file")
    media_type = _TYPES.get(file.name.rpartition(".")[2].lower(), "application/octet-stream")
    body = MediaBody(inline=file.data, media_type=media_type)
    return MediaPart(modality=Modality.AUDIO, body=body, param="file")
