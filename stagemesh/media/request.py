"""The internal request, as plain values: field for field as in `request.proto`."""

from collections.abc import Mapping
from typing import Final

import msgspec

from stagemesh.media.bodies import Body
from stagemesh.media.lanes import Modality

__all__ = [
    "MESSAGES_MAX",
    "PARTS_MAX",
    "STAGES_MAX",
    "AudioParams",
    "ImageParams",
    "MediaPart",
    "Message",
    "Params",
    "Part",
    "Request",
    "Sampling",
    "TextPart",
]


MESSAGES_MAX: Final = 4096
"""Messages of one request: each costs time at every hop, however few bytes it has."""

PARTS_MAX: Final = 16_384
"""Parts of all messages of one request, for the same reason."""


STAGES_MAX: Final = 64
"""Stages that one request tunes: as many as a pipeline may have."""


class TextPart(msgspec.Struct, frozen=True, tag=True):
    """Words inside a message."""

    text: str


class MediaPart(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Audio, an image or a video inside a message; `param` is the client's name of the field."""

    modality: Modality
    body: Body
    param: str = ""


Part = TextPart | MediaPart


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation; a single prompt is one message of the user."""

    role: str
    parts: tuple[Part, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """All text of the message, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are drawn; None means the pipeline's default."""

    tokens_max: int | None = None
    tokens_min: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool | None = None


class AudioParams(msgspec.Struct, frozen=True, kw_only=True):
    """How speech is made or heard; None means the pipeline's default."""

    voice: str | None = None
    speed: float | None = None
    language: str | None = None


class ImageParams(msgspec.Struct, frozen=True, kw_only=True):
    """How images are made; None means the pipeline's default."""

    width: int | None = None
    height: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    negative_prompt: str | None = None


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a client may tune."""

    sampling: Sampling = Sampling()
    audio: AudioParams = AudioParams()
    image: ImageParams = ImageParams()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request in the mesh's own words; `choices` is at least 1."""

    model: str
    messages: tuple[Message, ...]
    modalities: tuple[Modality, ...] = ()
    params: Params = Params()
    choices: int = 1
    seed: int = 0
    seed_explicit: bool = False
    label: str = ""
    tenant: str = "default"
    priority: int = 0
    """Within the tenant, the higher first; set by the edge, like the tenant."""
    stage_params: Mapping[str, Params] = {}
    """What a client tunes at one stage, by its name."""
    adapter: str = ""
    """The LoRA adapter for the stages that read the client's input."""

    @property
    def input_modalities(self) -> frozenset[Modality]:
        """What the messages contain."""
        return frozenset(
            part.modality if isinstance(part, MediaPart) else Modality.TEXT
            for message in self.messages
            for part in message.parts
        )
