import pytest

from services.stage_worker.bridges.transcript import create
from services.stage_worker.engines.base import AudioInput
from stagemesh.errors import MeshError
from stagemesh.media import AUDIO_PCM
from stagemesh.outcome import ErrorCode
from tests.helpers.bridge_contexts import context, said, source, spoken, user


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
