"""`transcript`: the one piece of audio of a request, as it came."""

from typing import ClassVar, Final

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed
from services.stage_worker.bridges.request import media_parts
from services.stage_worker.engines.base import AudioInput, EngineInput
from stagemesh.errors import invalid
from stagemesh.media import Modality

__all__ = ["TranscriptBridge", "create"]


class TranscriptBridge:
    """Gives the audio of the request; there must be one piece of it, no more and no less."""

    reads_media: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        self._request = context.request
        self.complete = False

    def start(self) -> list[EngineInput]:
        """Give the audio, undecoded."""
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
        """Take nothing: what is heard does not depend on other stages."""
        return []


create: Final[BridgeFactory] = TranscriptBridge
