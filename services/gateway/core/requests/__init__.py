"""What clients ask for: OpenAI's bodies, checked and turned into the internal request once."""

from services.gateway.core.requests.chat import (
    CHAT_EXTENSIONS,
    CHAT_UNSERVED,
    ChatOrder,
    read_chat,
)
from services.gateway.core.requests.image import (
    IMAGE_EXTENSIONS,
    IMAGE_UNSERVED,
    ImageOrder,
    read_image,
)
from services.gateway.core.requests.origin import Origin
from services.gateway.core.requests.speech import (
    SPEECH_EXTENSIONS,
    SPEECH_UNSERVED,
    SpeechOrder,
    read_speech,
)
from services.gateway.core.requests.transcription import (
    TRANSCRIPTION_EXTENSIONS,
    TRANSCRIPTION_UNSERVED,
    TranscriptionOrder,
    UploadedFile,
    read_transcription,
)

__all__ = [
    "CHAT_EXTENSIONS",
    "CHAT_UNSERVED",
    "IMAGE_EXTENSIONS",
    "IMAGE_UNSERVED",
    "SPEECH_EXTENSIONS",
    "SPEECH_UNSERVED",
    "TRANSCRIPTION_EXTENSIONS",
    "TRANSCRIPTION_UNSERVED",
    "ChatOrder",
    "ImageOrder",
    "Origin",
    "SpeechOrder",
    "TranscriptionOrder",
    "UploadedFile",
    "read_chat",
    "read_image",
    "read_speech",
    "read_transcription",
]
