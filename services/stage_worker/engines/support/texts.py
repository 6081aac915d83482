"""What engines that take plain text read of their input."""

from services.stage_worker.engines.base import ChatInput, EngineInput, TextInput
from stagemesh.errors import unsupported

__all__ = ["text_of"]


def text_of(given: EngineInput, *, param: str) -> str:
    """Give the text of an input; of a conversation, its last message.

    Raises:
        MeshError: If the input is not text.
    """
    match given:
        case TextInput(text=text):
            return text
        case ChatInput(messages=(*_, last)):
            return last.text
    raise unsupported("this model takes text only", param=param, reason="unsupported_modality")
