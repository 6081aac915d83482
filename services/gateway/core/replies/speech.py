"""Speech replies: rows of samples to bytes, or to events with bytes inside."""

import base64
from collections.abc import Sequence

from services.gateway.core.replies.audio import Recording, wav_header
from services.gateway.core.replies.head import error_event, event
from services.gateway.core.requests import SpeechOrder
from stagemesh.link.core import Row
from stagemesh.outcome import ErrorInfo, Status, Usage

__all__ = ["SpeechStream"]


class SpeechStream:
    """Writes one streamed reply; each piece is what is to be sent at once."""

    __slots__ = ("_events", "_headed", "recording")

    def __init__(self, order: SpeechOrder) -> None:
        self._events = order.events
        self._headed = order.format != "wav"
        self.recording = Recording()

    def write(self, rows: Sequence[Row]) -> bytes:
        """Write what some rows hold.

        Raises:
            MeshError: With `PROTOCOL`, if it is not samples.
        """
        data = b"".join(map(self.recording.note, rows))
        return self._wrap(self._file_head() + data if data else b"")

    def close(self, usage: Usage) -> bytes:
        """Write what a stream that ended well ends with."""
        last = self._wrap(self._file_head())
        if not self._events:
            return last
        done = {
            "type": "speech.audio.done",
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "output_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
        }
        return last + event(done)

    def fail(self, info: ErrorInfo, status: Status, request_id: str) -> bytes:
        """Write an error after the first byte; among bare bytes there is no place for one."""
        return error_event(info, status, request_id) if self._events else b""

    def _file_head(self) -> bytes:
        if self._headed:
            return b""
        self._headed = True
        return wav_header(self.recording.sample_rate_hz, self.recording.channels, data_bytes=None)

    def _wrap(self, data: bytes) -> bytes:
        if not self._events or not data:
            return data
        return event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
