"""The page of supported routes: `python -m services.gateway.edges.matrix` writes it."""

import sys
from collections.abc import Iterable

from services.gateway.edges.routes import ROUTES

__all__ = ["routes_page"]

_HEAD = """\
# Routes of the gateway

Generated from `services/gateway/edges/routes.py`; do not edit.
What is not listed here is not served.
A field that OpenAI knows and this gateway does not serve is answered 400 `unsupported_parameter`, unless its value asks for nothing; a field that nobody knows is answered 400 `unknown_parameter`.

| route | takes | gives |
|---|---|---|
"""  # noqa: E501 - one sentence a line.

_TAIL = """
Speech without a `response_format` is a wav, not an mp3 as at OpenAI: this gateway encodes nothing.
Streamed chat audio is always `pcm16`; its text comes as `content`, and once more, whole, as the audio's `transcript`.
An error after the first byte of a stream is one event with `error`, and no `[DONE]`; a stream of bare audio is cut off instead.
Every answer has an `x-request-id`; a client's own `X-Request-Id` is only a label.
`X-Request-Timeout` bounds a request in seconds.
`stage_params` tunes single stages of a pipeline, by name, in the words of `params` in a mesh file: `{"talker": {"sampling": {"temperature": 0.7}}}`; in a form it is that JSON as text.
It goes before everything else that a body says of the same field; what a pipeline lays down as `constraints` goes before it.
What OpenAI's fields say of tokens (`temperature`, `stop`, `max_completion_tokens` …) reaches the stage that comprehends the request only, never the decoder of a voice.
"""  # noqa: E501


def routes_page() -> str:
    """Write the page."""
    lines = [
        f"| `{route.method} {route.path}` | {route.takes or '—'} | {route.gives} |"
        for route in ROUTES
    ]
    page = _HEAD + "\n".join(lines) + "\n" + _TAIL
    for route in ROUTES:
        if route.extensions or route.unserved:
            page += f"\n## `{route.method} {route.path}`\n\n"
            page += f"Fields of our own: {_words(route.extensions)}.\n"
            page += f"OpenAI's fields that are not served: {_words(route.unserved)}.\n"
    return page


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


if __name__ == "__main__":
    sys.stdout.write(routes_page())
