"""Samples as files."""

import io
import wave

from services.gateway.core.replies import Bound, Recording, wav_header
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, lane_of


def _row(data: bytes, channels: int = 2) -> Row:
    body = Body(inline=data, media_type="audio/pcm", sample_rate_hz=8000, channels=channels)
    return Row(1, lane_of(0, 0, Modality.AUDIO), 0, 1, body=body)


def test_a_recording_is_a_file_that_others_can_read() -> None:
    recording = Recording()
    recording.add(_row(b"\1\0\2\0"), Bound(100))
    recording.add(Row(1, lane_of(0, 0, Modality.AUDIO), 1, 0), Bound(100))
    with wave.open(io.BytesIO(recording.wav)) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (2, 8000, 1)
        assert file.readframes(1) == recording.pcm == b"\1\0\2\0"


def test_silence_is_an_empty_file() -> None:
    with wave.open(io.BytesIO(Recording().wav)) as file:
        assert (file.getframerate(), file.getnframes()) == (24_000, 0)


def test_a_head_of_unknown_length_is_as_long_as_any_other() -> None:
    assert len(wav_header(16_000, 1, data_bytes=None)) == len(wav_header(16_000, 1, data_bytes=8))
