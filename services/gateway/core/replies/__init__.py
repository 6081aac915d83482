"""What clients get: rows of the mesh, written as OpenAI does."""

from services.gateway.core.replies.audio import Recording, wav_header
from services.gateway.core.replies.bound import Bound
from services.gateway.core.replies.chat import ChatStream, ChatWhole
from services.gateway.core.replies.head import (
    ReplyHead,
    encode,
    error_body,
    error_event,
)
from services.gateway.core.replies.image import ImagesWhole
from services.gateway.core.replies.speech import SpeechStream

__all__ = [
    "Bound",
    "ChatStream",
    "ChatWhole",
    "ImagesWhole",
    "Recording",
    "ReplyHead",
    "SpeechStream",
    "encode",
    "error_body",
    "error_event",
    "wav_header",
]
