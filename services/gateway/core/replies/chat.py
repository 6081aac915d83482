"""Chat replies: rows to OpenAI's chunks, or to one completion.

On the hot path a text row becomes one event by putting its JSON string between a prefix and a
suffix that were made once for the choice.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final

from services.gateway.core.replies.audio import Recording
from services.gateway.core.replies.bound import Bound
from services.gateway.core.replies.head import DONE, ReplyHead, encode, error_event
from services.gateway.core.requests import ChatOrder
from stagemesh.link.core import Row
from stagemesh.media import Modality, OutputKind
from stagemesh.outcome import ErrorInfo, FinishReason, Status, Usage

__all__ = ["ChatStream", "ChatWhole", "chat_usage"]

_REASONS: Final = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.TOOL_CALLS: "tool_calls",
    FinishReason.CONTENT_FILTER: "content_filter",
}
_TEXT: Final = int(Modality.TEXT)
_AUDIO: Final = int(Modality.AUDIO)
_PLAIN: Final = int(OutputKind.TEXT)


def chat_usage(usage: Usage) -> dict[str, Any]:
    """Write usage as OpenAI does."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class _Ends:
    """Which lanes of a choice have ended; its finish reason is that of its text, if it has any."""

    __slots__ = ("_open", "reason")

    def __init__(self, modalities: Sequence[Modality]) -> None:
        self._open = {int(modality) for modality in modalities}
        self.reason = "stop"

    def note(self, row: Row, modality: int) -> bool:
        """Take a row that ends a lane; return whether it ends the choice."""
        end = row.end
        if end is None or modality not in self._open or end.finish_reason is FinishReason.ABORT:
            return False
        self._open.discard(modality)
        if modality == _TEXT or (end.finish_reason is not FinishReason.STOP and not self._open):
            self.reason = _REASONS[end.finish_reason]
        return not self._open


class _StreamedChoice:
    __slots__ = ("audio", "begun", "ends", "finished", "prefix", "words")

    def __init__(self, modalities: Sequence[Modality], prefix: bytes) -> None:
        spoken = Modality.AUDIO in modalities
        self.prefix = prefix
        self.ends = _Ends(modalities)
        self.begun = self.finished = False
        self.audio: Recording | None = Recording() if spoken else None
        self.words: list[str] | None = [] if spoken else None


class ChatStream:
    """Writes one streamed reply; each piece is what is to be sent at once."""

    __slots__ = ("_choices", "_head", "_include_usage", "_opening", "_suffix", "_text_end")

    def __init__(self, head: ReplyHead, order: ChatOrder) -> None:
        self._head = head
        self._include_usage = order.include_usage
        fields = {
            "id": head.name("chatcmpl"),
            "object": "chat.completion.chunk",
            "created": head.created_s,
            "model": head.model,
        }
        self._opening = b"data: " + encode(fields)[:-1]
        self._suffix = b',"logprobs":null,"finish_reason":null}]%b}\n\n' % self._no_usage
        self._text_end = b"}" + self._suffix
        self._choices = [
            _StreamedChoice(order.request.modalities, self._prefix(index) + b'{"content":')
            for index in range(order.request.choices)
        ]

    @property
    def _no_usage(self) -> bytes:
        return b',"usage":null' if self._include_usage else b""

    def _prefix(self, index: int) -> bytes:
        return b'%b,"choices":[{"index":%d,"delta":' % (self._opening, index)

    def write(self, rows: Sequence[Row]) -> bytes:
        """Write the events for some rows, one for each row that says something.

        Raises:
            MeshError: With `PROTOCOL`, if audio is not what the mesh carries.
        """
        pieces: list[bytes] = []
        for row in rows:
            index = row.lane >> 4 & 0xFFFF
            choice = self._choices[index]
            if not choice.begun:
                choice.begun = True
                pieces.append(self._delta(index, {"role": "assistant", "content": ""}))
            modality = row.lane & 0xF
            if modality == _TEXT:
                if row.text and row.kind == _PLAIN:
                    pieces += (choice.prefix, encode(row.text), self._text_end)
                    if choice.words is not None:
                        choice.words.append(row.text)
            elif choice.audio is not None and (data := choice.audio.note(row)):
                pieces.append(self._audio(index, data=base64.b64encode(data).decode()))
            if row.end is not None and choice.ends.note(row, modality):
                pieces.append(self._finish(index, choice))
        return b"".join(pieces)

    def close(self, usage: Usage) -> bytes:
        """Write what a stream that ended well ends with."""
        pieces: list[bytes] = []
        for index, choice in enumerate(self._choices):
            if not choice.begun:
                choice.begun = True
                pieces.append(self._delta(index, {"role": "assistant", "content": ""}))
            pieces.append(self._finish(index, choice))
        if self._include_usage:
            usage_json = encode(chat_usage(usage))
            pieces.append(b'%b,"choices":[],"usage":%b}\n\n' % (self._opening, usage_json))
        pieces.append(DONE)
        return b"".join(pieces)

    def fail(self, info: ErrorInfo, status: Status, request_id: str) -> bytes:
        """Write an error after the first byte: the last event, and no `[DONE]`."""
        return error_event(info, status, request_id)

    def _delta(self, index: int, delta: dict[str, Any]) -> bytes:
        return self._prefix(index) + encode(delta) + self._suffix

    def _audio(self, index: int, **fields: Any) -> bytes:
        name = f"{self._head.name('audio')}-{index}"
        return self._delta(index, {"audio": {"id": name, **fields}})

    def _finish(self, index: int, choice: _StreamedChoice) -> bytes:
        if choice.finished:
            return b""
        choice.finished = True
        pieces: list[bytes] = []
        if choice.words:
            # The words went as content already; whoever reads transcripts gets them here, whole.
            pieces.append(self._audio(index, transcript="".join(choice.words)))
        if choice.audio is not None:
            pieces.append(self._audio(index, expires_at=self._head.created_s))
        pieces.append(
            b'%b{},"logprobs":null,"finish_reason":%b}]%b}\n\n'
            % (self._prefix(index), encode(choice.ends.reason), self._no_usage)
        )
        return b"".join(pieces)


class _WholeChoice:
    __slots__ = ("audio", "ends", "text")

    def __init__(self, modalities: Sequence[Modality]) -> None:
        self.ends = _Ends(modalities)
        self.text: list[str] = []
        self.audio = Recording()


class ChatWhole:
    """Collects one reply and writes it whole."""

    __slots__ = ("_bound", "_choices", "_head", "_order")

    def __init__(self, head: ReplyHead, order: ChatOrder, *, bytes_max: int) -> None:
        self._head = head
        self._order = order
        self._bound = Bound(bytes_max)
        self._choices = [
            _WholeChoice(order.request.modalities) for _ in range(order.request.choices)
        ]

    def add(self, rows: Sequence[Row]) -> None:
        """Take some rows.

        Raises:
            MeshError: If the reply outgrows its bound, or audio is not what the mesh carries.
        """
        for row in rows:
            choice = self._choices[row.lane >> 4 & 0xFFFF]
            modality = row.lane & 0xF
            if modality == _AUDIO:
                choice.audio.add(row, self._bound)
            elif row.kind == _PLAIN:
                self._bound.spend(len(row.text))
                choice.text.append(row.text)
            choice.ends.note(row, modality)

    def close(self, usage: Usage) -> bytes:
        """Write the reply."""
        return encode(
            {
                "id": self._head.name("chatcmpl"),
                "object": "chat.completion",
                "created": self._head.created_s,
                "model": self._head.model,
                "choices": [self._choice(index) for index in range(len(self._choices))],
                "usage": chat_usage(usage),
            }
        )

    def _choice(self, index: int) -> dict[str, Any]:
        choice = self._choices[index]
        text = "".join(choice.text)
        wordless = Modality.TEXT not in self._order.request.modalities
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if wordless else text,
            "refusal": None,
        }
        if self._order.audio_format:
            audio = choice.audio
            data = audio.wav if self._order.audio_format == "wav" else audio.pcm
            message["audio"] = {
                "id": f"{self._head.name('audio')}-{index}",
                "data": base64.b64encode(data).decode(),
                "expires_at": self._head.created_s,
                "transcript": text,
            }
        return {
            "index": index,
            "message": message,
            "logprobs": None,
            "finish_reason": choice.ends.reason,
        }
