import io
import wave

import numpy as np
import pytest

pytest.importorskip("av")
from services.stage_worker.engines.base import AudioInput
from services.stage_worker.engines.support.sound import Samples, decode
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode

RATE_HZ = 16_000


def tone(rate_hz: int, seconds: float = 1.0, channels: int = 1) -> bytes:
    """Make a tone of 440 Hz at half of full scale."""
    times = np.arange(int(rate_hz * seconds)) / rate_hz
    one = (np.sin(2 * np.pi * 440 * times) * 16384).astype("<i2")
    return np.repeat(one, channels).tobytes()


def pcm(data: bytes, rate_hz: int = RATE_HZ, channels: int = 1) -> AudioInput:
    return AudioInput(
        data=data, media_type="audio/pcm", sample_rate_hz=rate_hz, channels=channels, param="file"
    )


def wav(data: bytes, rate_hz: int, channels: int) -> AudioInput:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((channels, 2, rate_hz, 0, "NONE", ""))
        writer.writeframes(data)
    return AudioInput(data=file.getvalue(), media_type="audio/wav", param="file")


def heard(given: AudioInput, seconds: float = 60.0) -> Samples:
    return decode(given, rate_hz=RATE_HZ, duration_s_max=seconds)


def pitch_hz(samples: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.argmax(spectrum) * RATE_HZ / len(samples))


@pytest.mark.parametrize(
    "given",
    [
        pcm(tone(RATE_HZ)),
        pcm(tone(48_000, channels=2), 48_000, 2),
        wav(tone(44_100, channels=2), 44_100, 2),
        wav(tone(8_000), 8_000, 1),
    ],
)
def test_any_rate_and_channels_become_one_channel_at_the_rate(given: AudioInput) -> None:
    samples = heard(given)
    assert samples.dtype == np.float32
    assert abs(len(samples) - RATE_HZ) <= RATE_HZ * 0.01
    assert abs(pitch_hz(samples) - 440) < 3
    assert 0.45 < np.abs(samples).max() < 0.55


@pytest.mark.parametrize(
    "given",
    [
        pcm(b""),
        pcm(b"x"),
        pcm(bytes(100), rate_hz=0),
        pcm(bytes(100), channels=0),
        wav(b"", RATE_HZ, 1),
        AudioInput(data=b"", media_type="audio/wav", param="file"),
        AudioInput(data=b"no audio at all" * 50, media_type="audio/mpeg", param="file"),
        AudioInput(data=b"RIFF\x00\x00", media_type="audio/wav", param="file"),
    ],
)
def test_what_is_no_audio_is_the_client_s_error(given: AudioInput) -> None:
    with pytest.raises(MeshError) as caught:
        heard(given)
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.reason == "undecodable_audio"
    assert caught.value.info.param == "file"


def test_half_a_sample_at_the_end_is_dropped() -> None:
    assert len(heard(pcm(tone(RATE_HZ) + b"x"))) == RATE_HZ


def test_audio_that_is_too_long_is_refused_without_decoding_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = 0

    def endless(file: object, rate_hz: int) -> object:
        nonlocal parts
        while True:
            parts += 1
            yield np.zeros(rate_hz, np.int16)

    monkeypatch.setattr("services.stage_worker.engines.support.sound._parts", endless)
    with pytest.raises(MeshError, match="longer than 2 s"):
        heard(pcm(tone(RATE_HZ)), seconds=2.0)
    assert parts == 3
