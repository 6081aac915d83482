"""Bytes, inline or by handle."""

import msgspec

__all__ = [
    "AUDIO_PCM",
    "IMAGE_PNG",
    "INLINE_BYTES_MAX",
    "SAFETENSORS",
    "SAMPLE_BYTES",
    "Body",
    "Handle",
]

INLINE_BYTES_MAX = 64 * 1024
"""Above this, bytes travel by handle and never cross an orchestrator's core."""

AUDIO_PCM = "audio/pcm"
"""Signed 16-bit little-endian samples, interleaved."""

SAMPLE_BYTES = 2
"""Of one sample of it, of one channel."""

IMAGE_PNG = "image/png"
SAFETENSORS = "application/x-safetensors"
"""One safetensors buffer: several named tensors with their shapes and dtypes."""


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A reference to bytes in a payload store; field for field as in `media.proto`."""

    handle_id: str
    request_id: str
    holder_id: str
    incarnation: int
    address: str
    probe: str = ""
    size_bytes: int = 0
    digest: bytes = b""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes with what is needed to read them; exactly one of `inline` and `handle` counts."""

    inline: bytes = b""
    handle: Handle | None = None
    media_type: str = ""
    sample_rate_hz: int = 0
    channels: int = 1
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def size_bytes(self) -> int:
        """How many bytes it stands for."""
        return self.handle.size_bytes if self.handle else len(self.inline)
