"""Speech replies, piece by piece."""

import base64
import json

import pytest

from services.gateway.core.replies import SpeechStream
from services.gateway.core.requests import SpeechOrder
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, Request, lane_of
from stagemesh.outcome import Outcome, Usage, error_for, status_of


def _stream(audio_format: str, *, events: bool = False) -> SpeechStream:
    request = Request(model="m", messages=(), modalities=(Modality.AUDIO,))
    return SpeechStream(
        SpeechOrder(request=request, format=audio_format, stream=True, events=events)
    )


def _row(data: bytes, media_type: str = "audio/pcm") -> Row:
    body = Body(inline=data, media_type=media_type, sample_rate_hz=8000)
    return Row(1, lane_of(0, 0, Modality.AUDIO), 0, 1, body=body)


def test_bare_samples_are_joined() -> None:
    stream = _stream("pcm")
    assert stream.write([_row(b"ab"), _row(b"cd")]) == b"abcd"
    assert stream.close(Usage()) == b""


def test_a_file_has_its_head_once_even_if_it_is_empty() -> None:
    stream = _stream("wav")
    assert stream.write([_row(b"ab")])[:4] == b"RIFF"
    assert stream.write([_row(b"cd")]) == b"cd"
    assert stream.close(Usage()) == b""
    assert len(_stream("wav").close(Usage())) == 44


def test_events_carry_base64_and_end_with_usage() -> None:
    stream = _stream("pcm", events=True)
    delta = json.loads(stream.write([_row(b"ab")]).removeprefix(b"data: "))
    done = json.loads(stream.close(Usage(prompt_tokens=2)).removeprefix(b"data: "))
    assert delta["type"] == "speech.audio.delta"
    assert base64.b64decode(delta["audio"]) == b"ab"
    assert done["type"] == "speech.audio.done"
    assert done["usage"] == {"input_tokens": 2, "output_tokens": 0, "total_tokens": 2}


def test_only_events_have_a_place_for_an_error() -> None:
    info = error_for("replica_lost")
    status = status_of(Outcome.FAILED, info.code)
    assert _stream("pcm").fail(info, status, "r") == b""
    assert b'"replica_lost"' in _stream("pcm", events=True).fail(info, status, "r")


def test_what_is_not_samples_is_refused() -> None:
    with pytest.raises(MeshError):
        _stream("pcm").write([_row(b"ab", "audio/ogg")])
