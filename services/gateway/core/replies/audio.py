"""Samples as the mesh carries them (signed 16-bit little-endian) to what clients asked for."""

import struct
from typing import Final

from services.gateway.core.replies.bound import Bound
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.media import AUDIO_PCM, SAMPLE_BYTES
from stagemesh.outcome import error_for

__all__ = ["Recording", "wav_header"]

_UNKNOWN: Final = 0xFFFF_FFFF
_RATE_OF_SILENCE_HZ: Final = 24_000


class Recording:
    """The samples of one lane, collected; the first of them tell the format."""

    __slots__ = ("_data", "channels", "sample_rate_hz")

    def __init__(self) -> None:
        self._data = bytearray()
        self.sample_rate_hz = 0
        self.channels = 1

    def note(self, row: Row) -> bytes:
        """Learn the format from a row and give its samples.

        Raises:
            MeshError: With `PROTOCOL`, if it carries anything but samples, or changes the format.
        """
        body = row.body
        if body is None or not body.size_bytes:
            return b""
        rate_hz, channels = body.sample_rate_hz, body.channels or 1
        if not self.sample_rate_hz:
            self.sample_rate_hz, self.channels = rate_hz, channels
        if (
            body.media_type != AUDIO_PCM
            or not rate_hz
            or (rate_hz, channels) != (self.sample_rate_hz, self.channels)
        ):
            raise MeshError(
                error_for(
                    "protocol_error",
                    f"Audio of {body.media_type} at {rate_hz} Hz came after "
                    f"{self.sample_rate_hz} Hz.",
                )
            )
        return body.inline

    def add(self, row: Row, bound: Bound) -> None:
        """Collect a row's samples.

        Raises:
            MeshError: As `note` does, or if the reply outgrows its bound.
        """
        data = self.note(row)
        bound.spend(len(data))
        self._data += data

    @property
    def pcm(self) -> bytes:
        """The samples alone."""
        return bytes(self._data)

    @property
    def wav(self) -> bytes:
        """The samples as a file."""
        return (
            wav_header(self.sample_rate_hz, self.channels, data_bytes=len(self._data)) + self._data
        )


def wav_header(sample_rate_hz: int, channels: int, *, data_bytes: int | None) -> bytes:
    """Write the head of a wav file; without a size it is for a stream whose end nobody knows.

    A rate of 0, where there was no sample to tell it, is written as 24 kHz.
    """
    rate_hz = sample_rate_hz or _RATE_OF_SILENCE_HZ
    frame_bytes = channels * SAMPLE_BYTES
    size = _UNKNOWN if data_bytes is None else min(data_bytes, _UNKNOWN)
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        min(size + 36, _UNKNOWN),
        b"WAVE",
        b"fmt ",
        16,
        1,
        channels,
        rate_hz,
        rate_hz * frame_bytes,
        frame_bytes,
        8 * SAMPLE_BYTES,
        b"data",
        size,
    )
