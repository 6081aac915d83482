"""Modalities, lanes, bytes and the internal request, as plain values without I/O."""

from stagemesh.media.bodies import (
    AUDIO_PCM,
    IMAGE_PNG,
    INLINE_BYTES_MAX,
    SAFETENSORS,
    SAMPLE_BYTES,
    Body,
    Handle,
)
from stagemesh.media.lanes import Lane, Modality, OutputKind, lane_of, split_lane
from stagemesh.media.request import (
    MESSAGES_MAX,
    PARTS_MAX,
    STAGES_MAX,
    AudioParams,
    ImageParams,
    MediaPart,
    Message,
    Params,
    Part,
    Request,
    Sampling,
    TextPart,
)

__all__ = [
    "AUDIO_PCM",
    "IMAGE_PNG",
    "INLINE_BYTES_MAX",
    "MESSAGES_MAX",
    "PARTS_MAX",
    "SAFETENSORS",
    "SAMPLE_BYTES",
    "STAGES_MAX",
    "AudioParams",
    "Body",
    "Handle",
    "ImageParams",
    "Lane",
    "MediaPart",
    "Message",
    "Modality",
    "OutputKind",
    "Params",
    "Part",
    "Request",
    "Sampling",
    "TextPart",
    "lane_of",
    "split_lane",
]
