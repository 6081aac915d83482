"""`transcript`: the one piece of audio of a request, as it came.

What a client streams is one piece of audio too, from the beginning of the attempt to its end: all
of it, or one segment.
"""

from typing import ClassVar, Final

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed
from services.stage_worker.bridges.request import media_parts
from services.stage_worker.engines.base import AudioInput, EngineInput
from stagemesh.errors import invalid, unsupported
from stagemesh.media import Body, Modality

__all__ = ["TranscriptBridge", "create"]


class TranscriptBridge:
    """Gives the audio of the request; there must be one piece of it, no more and no less.

    Where the client streams, that is what it streamed; silence is no input.
    """

    reads_media: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        self._request = context.request
        self._streamed = bool(context.sources)
        self._heard: list[Body] = []
        self.complete = False

    def start(self) -> list[EngineInput]:
        """Give the audio, undecoded."""
        if self._streamed:
            return []
        self.complete = True
        audio = [part for part in media_parts(self._request) if part.modality is Modality.AUDIO]
        if not audio:
            raise invalid(
                "there is no audio to transcribe",
                param="messages",
                reason="missing_required_parameter",
            )
        if len(audio) > 1:
            raise invalid("only one piece of audio can be heard at a time", param=audio[1].param)
        body = audio[0].body
        return [
            AudioInput(
                data=body.inline,
                media_type=body.media_type,
                sample_rate_hz=body.sample_rate_hz,
                channels=body.channels,
                param=audio[0].param,
            )
        ]

    def feed(self, fed: Fed) -> list[EngineInput]:
        """Take a piece of audio, and give all of it at the end."""
        if fed.text:
            raise unsupported(
                "this model hears audio only", param="append", reason="unsupported_modality"
            )
        if fed.body is not None:
            self._heard.append(fed.body)
        if not fed.last:
            return []
        self.complete = True
        return [_joined(self._heard)] if self._heard else []


def _joined(pieces: list[Body]) -> AudioInput:
    """Put pieces of one recording together.

    Raises:
        MeshError: If they are not of one kind.
    """
    kinds = {(body.media_type, body.sample_rate_hz, body.channels) for body in pieces}
    if len(kinds) > 1:
        raise invalid("the pieces of one segment must be of one kind", param="append.audio")
    media_type, sample_rate_hz, channels = kinds.pop()
    return AudioInput(
        data=b"".join(body.inline for body in pieces),
        media_type=media_type,
        sample_rate_hz=sample_rate_hz,
        channels=channels,
        param="append.audio",
    )


create: Final[BridgeFactory] = TranscriptBridge
