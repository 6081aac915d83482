"""`POST /v1/audio/speech`."""

from typing import Final

from services.gateway.core.replies import Bound, Recording, SpeechStream
from services.gateway.core.requests import SpeechOrder, read_speech
from services.gateway.edges.call import Call
from services.gateway.edges.relay import SSE, Watched, collect, stream
from stagemesh.link.core import Row

__all__ = ["speech"]

_TYPES: Final = {"pcm": "audio/pcm", "wav": "audio/wav"}


async def speech(call: Call) -> None:
    """Answer a text with speech, as it is made or whole."""
    order = read_speech(await call.body(), call.origin())
    call.names = order.names
    async with Watched(call, await call.open(order.request)) as watched:
        if order.stream:
            writer = SpeechStream(order)
            content_type = SSE if order.events else _TYPES[order.format]
            await stream(
                call, watched.exchange, writer, content_type, lambda: _format(writer.recording)
            )
        else:
            await _whole(call, watched, order)


async def _whole(call: Call, watched: Watched, order: SpeechOrder) -> None:
    recording = Recording()
    bound = Bound(call.backend.limits.reply_bytes_max)

    def add(rows: list[Row]) -> None:
        for row in rows:
            recording.add(row, bound)

    await collect(watched.exchange, add)
    data = recording.wav if order.format == "wav" else recording.pcm
    await call.answer(_TYPES[order.format], data, headers=_format(recording))


def _format(recording: Recording) -> list[tuple[str, str]]:
    """Tell the format in headers: bare samples do not say it themselves."""
    if not recording.sample_rate_hz:
        return []
    return [
        ("x-audio-sample-rate", str(recording.sample_rate_hz)),
        ("x-audio-channels", str(recording.channels)),
    ]
