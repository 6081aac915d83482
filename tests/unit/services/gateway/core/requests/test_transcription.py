"""Transcription forms."""

import pytest

from services.gateway.core.requests import (
    Origin,
    TranscriptionOrder,
    UploadedFile,
    read_transcription,
)
from stagemesh.errors import MeshError
from stagemesh.media import MediaPart

FILE = UploadedFile(name="speech.FLAC", data=b"fLaC")


def _read(*fields: tuple[str, str], file: UploadedFile | None = FILE) -> TranscriptionOrder:
    return read_transcription([("model", "m"), *fields], file, Origin())


def test_a_file_becomes_audio_of_the_type_that_its_name_suggests() -> None:
    order = _read(("language", "en"), ("temperature", "0.5"), ("prompt", ""), ("stream", "false"))
    part = order.request.messages[0].parts[0]
    assert isinstance(part, MediaPart)
    assert (part.body.inline, part.body.media_type) == (b"fLaC", "audio/flac")
    assert order.request.params.audio.language == "en"
    assert order.request.params.sampling.temperature == 0.5
    assert order.format == "json"


@pytest.mark.parametrize("name", ["", "speech", "speech.exe", "speech.pcm"])
def test_a_name_that_suggests_nothing_leaves_the_type_open(name: str) -> None:
    part = _read(file=UploadedFile(name=name, data=b"x")).request.messages[0].parts[0]
    assert isinstance(part, MediaPart)
    assert part.body.media_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (("model", ""), "invalid_value"),
        (("temperature", "warm"), "invalid_type"),
        (("temperature", "nan"), "invalid_value"),
        (("response_format", "srt"), "unsupported_value"),
        (("stream", "true"), "unsupported_parameter"),
        (("prompt", "Names: Ada"), "unsupported_parameter"),
        (("timestamp_granularities[]", "word"), "unsupported_parameter"),
        (("speaker", "Ada"), "unknown_parameter"),
    ],
)
def test_a_field_that_is_wrong_is_named(field: tuple[str, str], reason: str) -> None:
    with pytest.raises(MeshError) as caught:
        _read(field)
    assert caught.value.info.param == field[0].removesuffix("[]")
    assert caught.value.info.reason == reason


@pytest.mark.parametrize("file", [None, UploadedFile(name="a.wav", data=b"")])
def test_without_a_recording_there_is_nothing_to_hear(file: UploadedFile | None) -> None:
    with pytest.raises(MeshError) as caught:
        _read(file=file)
    assert caught.value.info.param == "file"
