import pytest

from services.stage_worker.bridges.base import Fed
from services.stage_worker.bridges.transcript import create
from services.stage_worker.engines.base import AudioInput
from stagemesh.errors import MeshError
from stagemesh.media import AUDIO_PCM
from stagemesh.outcome import ErrorCode
from tests.helpers.bridge_contexts import (
    CLIENT,
    appended,
    context,
    said,
    source,
    spoken,
    user,
)


def test_the_audio_comes_as_it_is() -> None:
    bridge = create(context(user("Transcribe.", spoken("file", b"12"))))
    assert bridge.start() == [
        AudioInput(
            data=b"12", media_type=AUDIO_PCM, sample_rate_hz=16_000, channels=2, param="file"
        )
    ]
    assert bridge.complete
    assert bridge.feed(said(source())) == []


def test_no_audio_is_the_clients_mistake() -> None:
    with pytest.raises(MeshError) as caught:
        create(context(user("Nothing here"))).start()
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT


def test_a_second_piece_of_audio_is_refused_by_its_field() -> None:
    with pytest.raises(MeshError) as caught:
        create(context(user(spoken("first")), user(spoken("second")))).start()
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == "second"


def test_media_are_fetched_for_it() -> None:
    assert create.reads_media


def test_what_a_client_streams_is_one_piece_of_audio() -> None:
    bridge = create(context(sources=[CLIENT]))
    assert bridge.start() == []
    assert bridge.feed(appended(data=b"ab")) == []
    assert bridge.feed(appended(data=b"cd", pos=1)) == []
    (given,) = bridge.feed(appended(pos=2, last=True))
    assert given == AudioInput(
        data=b"abcd", media_type=AUDIO_PCM, sample_rate_hz=24_000, param="append.audio"
    )
    assert bridge.complete


def test_a_client_that_said_nothing_gives_nothing_to_hear() -> None:
    bridge = create(context(sources=[CLIENT]))
    assert bridge.feed(appended(last=True)) == []
    assert bridge.complete


@pytest.mark.parametrize(
    ("pieces", "param"),
    [
        ([appended("words")], "append"),
        ([appended(data=b"a"), appended(data=b"b", media_type="audio/mpeg")], "append.audio"),
    ],
)
def test_what_is_no_audio_or_of_two_kinds_is_refused(pieces: list[Fed], param: str) -> None:
    bridge = create(context(sources=[CLIENT]))
    with pytest.raises(MeshError) as caught:
        for fed in [*pieces, appended(pos=9, last=True)]:
            bridge.feed(fed)
    assert caught.value.info.param == param
