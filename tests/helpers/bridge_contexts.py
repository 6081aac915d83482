"""What bridges are given, for tests."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.stage_worker.bridges.base import Context, Fed, SourceSpec
from stagemesh.link.core import REQUEST_SOURCE
from stagemesh.media import (
    AUDIO_PCM,
    Body,
    MediaPart,
    Message,
    Modality,
    Params,
    Request,
    TextPart,
    lane_of,
)

__all__ = ["CLIENT", "appended", "context", "said", "source", "spoken", "user"]

CLIENT: Final = SourceSpec(lane=REQUEST_SOURCE, stage="input")
"""What a client gives piece by piece."""


def source(
    stage: int = 0, *, companion: str = "", role: int = 0, modality: Modality = Modality.TEXT
) -> SourceSpec:
    """Make a source lane."""
    lane = lane_of(stage, role, modality)
    return SourceSpec(lane=lane, stage=f"stage{stage}", companion=companion)


def user(*parts: str | MediaPart) -> Message:
    """Make a message of the user."""
    made = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return Message(role="user", parts=made)


def spoken(param: str = "messages[0].content[0]", data: bytes = b"pcm") -> MediaPart:
    """Make a piece of audio."""
    body = Body(inline=data, media_type=AUDIO_PCM, sample_rate_hz=16_000, channels=2)
    return MediaPart(modality=Modality.AUDIO, body=body, param=param)


def context(
    *messages: Message,
    sources: Sequence[SourceSpec] = (),
    companion: str = "",
    params: Params | None = None,
    options: Mapping[str, Any] | None = None,
) -> Context:
    """Make the context of a bridge."""
    return Context(
        request=Request(model="m", messages=messages),
        params=params or Params(),
        stage="stage",
        companion=companion,
        choice=0,
        sources=tuple(sources),
        options=options or {},
    )


def said(
    given: SourceSpec, text: str = "", *, pos: int = 0, units: int = 1, last: bool = False
) -> Fed:
    """Make a piece of upstream text."""
    return Fed(source=given, pos=pos, units=units, text=text, last=last)


def appended(
    text: str = "",
    *,
    data: bytes = b"",
    pos: int = 0,
    media_type: str = AUDIO_PCM,
    segment_end: bool = False,
    last: bool = False,
) -> Fed:
    """Make a piece of a client's input; with neither text nor data it is a bare mark."""
    body = Body(inline=data, media_type=media_type, sample_rate_hz=24_000) if data else None
    return Fed(
        source=CLIENT,
        pos=pos,
        units=0 if last else 1,
        text=text,
        body=body,
        segment_end=segment_end,
        last=last,
    )
