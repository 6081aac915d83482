"""Decodes whatever audio a client sends into what a model hears: one channel of floats."""

import io
import wave
from collections.abc import Iterator

import av
import numpy as np
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from services.stage_worker.engines.base import AudioInput
from stagemesh.errors import invalid
from stagemesh.media import AUDIO_PCM, SAMPLE_BYTES

__all__ = ["decode"]

Samples = NDArray[np.float32]


def decode(given: AudioInput, *, rate_hz: int, duration_s_max: float) -> Samples:
    """Decode a file, or raw samples, into samples in [-1, 1] at a rate.

    A small file may hold hours of silence, so decoding stops once it gets too long.

    Raises:
        MeshError: If it is not audio, is empty or too long.
    """
    file = io.BytesIO(_wav(given) if given.media_type == AUDIO_PCM else given.data)
    parts: list[NDArray[np.int16]] = []
    samples = 0
    try:
        for part in _parts(file, rate_hz):
            parts.append(part)
            samples += len(part)
            if samples > duration_s_max * rate_hz:
                break
    # FFmpeg's errors for what is not audio derive from many built-in ones: OSError, ValueError, …
    except (av.FFmpegError, IndexError, ValueError) as error:
        raise _undecodable("the audio cannot be decoded", given) from error
    if not samples:
        raise _undecodable("the audio is empty", given)
    if samples > duration_s_max * rate_hz:
        raise invalid(f"the audio is longer than {duration_s_max:g} s", param=given.param)
    return np.concatenate(parts).astype(np.float32) / 32768.0


def _parts(file: io.BytesIO, rate_hz: int) -> Iterator[NDArray[np.int16]]:
    resampler = AudioResampler(format="s16", layout="mono", rate=rate_hz)
    with av.open(file, mode="r", metadata_errors="ignore") as container:
        for frame in container.decode(audio=0):
            frame.pts = None  # Files with gaps or wrong times are heard as they come.
            for resampled in resampler.resample(frame):
                yield resampled.to_ndarray().ravel().astype(np.int16, copy=False)
        for resampled in resampler.resample(None):
            yield resampled.to_ndarray().ravel().astype(np.int16, copy=False)


def _wav(given: AudioInput) -> bytes:
    """Put a head before raw samples, so that they take the same path as files."""
    file = io.BytesIO()
    whole = len(given.data) - len(given.data) % (SAMPLE_BYTES * max(1, given.channels))
    try:
        with wave.open(file, "wb") as writer:
            writer.setsampwidth(SAMPLE_BYTES)
            writer.setnchannels(given.channels)
            writer.setframerate(given.sample_rate_hz)
            writer.writeframes(given.data[:whole])
    except wave.Error as error:
        raise _undecodable(f"raw audio needs its rate and channels: {error}", given) from error
    return file.getvalue()


def _undecodable(message: str, given: AudioInput) -> Exception:
    return invalid(message, param=given.param, reason="undecodable_audio")
