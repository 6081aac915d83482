"""Speech bodies."""

import json
from typing import Any

import pytest

from services.gateway.core.requests import Origin, SpeechOrder, read_speech
from stagemesh.errors import MeshError
from stagemesh.media import AudioParams, Modality, TextPart


def _read(**body: Any) -> SpeechOrder:
    full = {"model": "m", "input": "Hello.", "voice": "joe", **body}
    return read_speech(json.dumps(full).encode(), Origin())


def test_a_text_becomes_a_message() -> None:
    order = _read(speed=1.25)
    assert order.request.messages[0].parts == (TextPart("Hello."),)
    assert order.request.modalities == (Modality.AUDIO,)
    assert order.request.params.audio == AudioParams(voice="joe", speed=1.25)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({}, ("wav", False, False)),
        ({"response_format": "wav"}, ("wav", False, False)),
        ({"response_format": "wav", "stream": True}, ("wav", True, False)),
        ({"response_format": "pcm"}, ("pcm", True, False)),
        ({"response_format": "pcm", "stream": False}, ("pcm", False, False)),
        ({"response_format": "pcm", "stream_format": "audio"}, ("pcm", True, False)),
        ({"stream_format": "sse"}, ("wav", True, True)),
        ({"stream_format": "sse", "stream": False}, ("wav", True, True)),
    ],
)
def test_samples_are_streamed_and_files_are_whole_unless_asked_otherwise(
    body: dict[str, Any], wanted: tuple[str, bool, bool]
) -> None:
    order = _read(**body)
    assert (order.format, order.stream, order.events) == wanted


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        ({"input": ""}, "input", "invalid_value"),
        ({"input": ["a"]}, "input", "invalid_type"),
        ({"voice": ""}, "voice", "invalid_value"),
        ({"voice": {"name": "joe"}}, "voice.name", "unknown_parameter"),
        ({"speed": "fast"}, "speed", "invalid_type"),
        ({"response_format": "mp3"}, "response_format", "unsupported_value"),
        ({"stream_format": "ws"}, "stream_format", "invalid_value"),
        ({"instructions": "whisper"}, "instructions", "unsupported_parameter"),
        ({"pitch": 1}, "pitch", "unknown_parameter"),
    ],
)
def test_a_field_that_is_wrong_is_named(body: dict[str, Any], param: str, reason: str) -> None:
    with pytest.raises(MeshError) as caught:
        _read(**body)
    assert (caught.value.info.param, caught.value.info.reason) == (param, reason)
