"""What every route adds to a body, and the rules that several routes share."""

import msgspec

from services.gateway.core.requests.decoding import Body
from stagemesh.errors import invalid

__all__ = ["Origin", "Voice", "model_name", "voice_name"]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What does not come from the body: the client's label, and a seed drawn for the request."""

    label: str = ""
    seed: int = 0


class _VoiceId(Body, frozen=True):
    id: str


Voice = str | _VoiceId
"""OpenAI names a voice by a word, or by an object with its id."""


def model_name(model: str) -> str:
    """Check that a model was named.

    Raises:
        MeshError: If the name is empty.
    """
    if not model:
        raise invalid("A model must be named.", param="model")
    return model


def voice_name(voice: Voice | None, param: str) -> str | None:
    """Give a voice's name, None for the pipeline's own.

    Raises:
        MeshError: If the name is empty.
    """
    if voice is None:
        return None
    name = voice if isinstance(voice, str) else voice.id
    if not name:
        raise invalid("A voice must be named.", param=param)
    return name
