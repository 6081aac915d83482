"""The table of routes: what the gateway answers, and all that it claims."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from services.gateway.core.requests import (
    CHAT_EXTENSIONS,
    CHAT_UNSERVED,
    IMAGE_EXTENSIONS,
    IMAGE_UNSERVED,
    SPEECH_EXTENSIONS,
    SPEECH_UNSERVED,
    TRANSCRIPTION_EXTENSIONS,
    TRANSCRIPTION_UNSERVED,
)
from services.gateway.edges.call import Call
from services.gateway.edges.chat import chat
from services.gateway.edges.image import image
from services.gateway.edges.models import MODELS_PATH, list_models, show_model
from services.gateway.edges.probes import health, metrics, ready
from services.gateway.edges.speech import speech
from services.gateway.edges.transcription import transcription

__all__ = ["ROUTES", "Route", "find"]

Endpoint = Callable[[Call], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route; a path that ends in `{…}` takes the rest of the path there."""

    method: str
    path: str
    endpoint: Endpoint
    takes: str = ""
    gives: str
    extensions: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()


ROUTES: Final = (
    Route(method="GET", path=MODELS_PATH, endpoint=list_models, gives="JSON"),
    Route(method="GET", path=f"{MODELS_PATH}/{{model}}", endpoint=show_model, gives="JSON"),
    Route(
        method="POST",
        path="/v1/chat/completions",
        endpoint=chat,
        takes="JSON; text, input_audio (wav, mp3), image_url (data URLs)",
        gives="JSON, or SSE with `stream`; text, audio (pcm16; wav too where not streamed)",
        extensions=CHAT_EXTENSIONS,
        unserved=tuple(CHAT_UNSERVED),
    ),
    Route(
        method="POST",
        path="/v1/audio/speech",
        endpoint=speech,
        takes="JSON",
        gives="wav (default) or pcm bytes, whole or chunked; SSE with `stream_format: sse`",
        extensions=SPEECH_EXTENSIONS,
        unserved=tuple(SPEECH_UNSERVED),
    ),
    Route(
        method="POST",
        path="/v1/audio/transcriptions",
        endpoint=transcription,
        takes="multipart form",
        gives="JSON or plain text",
        extensions=TRANSCRIPTION_EXTENSIONS,
        unserved=tuple(TRANSCRIPTION_UNSERVED),
    ),
    Route(
        method="POST",
        path="/v1/images/generations",
        endpoint=image,
        takes="JSON",
        gives="JSON with base64 PNG",
        extensions=IMAGE_EXTENSIONS,
        unserved=tuple(IMAGE_UNSERVED),
    ),
    Route(method="GET", path="/health", endpoint=health, gives="JSON"),
    Route(method="GET", path="/ready", endpoint=ready, gives="JSON"),
    Route(method="GET", path="/metrics", endpoint=metrics, gives="Prometheus text, OpenMetrics"),
)

_EXACT: Final = {
    path: {route.method: route for route in ROUTES if route.path == path}
    for path in {route.path for route in ROUTES if not route.path.endswith("}")}
}
_PREFIXES: Final = tuple(
    (route.path[: route.path.index("{")], route) for route in ROUTES if route.path.endswith("}")
)


def find(path: str) -> dict[str, Route]:
    """Find the routes of a path by method; none if there is nothing under it."""
    found = _EXACT.get(path)
    if found is not None:
        return found
    return {
        route.method: route
        for prefix, route in _PREFIXES
        if path.startswith(prefix) and len(path) > len(prefix)
    }
