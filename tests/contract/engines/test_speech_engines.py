"""The voice and the transcriber, tested on each other and on what is no speech."""

import array
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.stage_worker.engines import find_engine
from services.stage_worker.engines.base import AudioInput, ChatInput, TextInput
from stagemesh.errors import MeshError
from stagemesh.media import AudioParams, Message, Modality, Params, TextPart
from stagemesh.outcome import ErrorCode
from tests.contract.engines.case_piper import CASE as VOICE_CASE
from tests.contract.engines.case_whisper import CASE
from tests.helpers.engines import MODEL_MARKS, Collector, collecting, recording

MISSING = CASE.missing() or VOICE_CASE.missing()
RATE_HZ = 22_050

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "all is there"),
    *MODEL_MARKS,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voice() -> AsyncIterator[Collector]:
    async with collecting(find_engine("piper")(VOICE_CASE.config)) as collector:
        yield collector


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def listener() -> AsyncIterator[Collector]:
    async with collecting(find_engine("whisper")(CASE.config)) as collector:
        yield collector


def pcm(data: bytes, rate_hz: int = 16_000) -> AudioInput:
    return AudioInput(data=data, media_type="audio/pcm", sample_rate_hz=rate_hz, param="file")


def noise(amplitude: int, samples: int) -> bytes:
    rng = random.Random(3)
    return array.array("h", (rng.randint(-amplitude, amplitude) for _ in range(samples))).tobytes()


async def said(voice: Collector, text: str) -> bytes:
    return voice.data(await voice.run(TextInput(text=text), wanted=Modality.AUDIO))


async def heard(listener: Collector, audio: AudioInput) -> str:
    number = await listener.run(audio)
    listener.end(number)
    return listener.text(number)


async def test_what_the_voice_says_is_heard(voice: Collector, listener: Collector) -> None:
    text = "The quick brown fox jumps over 25 lazy dogs."
    assert await heard(listener, pcm(await said(voice, text), RATE_HZ)) == text


async def test_a_recording_is_heard_word_for_word(listener: Collector) -> None:
    assert await heard(listener, recording()) == "Good morning, the meeting starts at 10."


@pytest.mark.parametrize(
    "data",
    [
        bytes(16_000 * 10),
        noise(30, 16_000 * 3),
        noise(3000, 16_000 * 3),
        bytes(2),
        bytes(2 * 800),
    ],
    ids=["silence", "quiet noise", "loud noise", "one sample", "50 ms"],
)
async def test_nothing_is_heard_where_nothing_is_said(listener: Collector, data: bytes) -> None:
    number = await listener.run(pcm(data))
    assert listener.text(number) == ""
    assert listener.end(number).usage.audio_input_samples == len(data) // 2


async def test_a_language_is_the_model_s_or_refused(listener: Collector) -> None:
    english, german = (Params(audio=AudioParams(language=name)) for name in ("EN", "de"))
    number = await listener.run(recording(), params=english)
    assert listener.text(number).startswith("Good morning")
    refused = await listener.run(recording(), params=german)
    assert listener.error(refused).code is ErrorCode.UNSUPPORTED
    assert listener.error(refused).param == "language"


@pytest.mark.parametrize("text", ["", "  ", "...", "?!", "😀😀", "日本"])
async def test_what_has_no_sound_ends_without_audio(voice: Collector, text: str) -> None:
    number = await voice.run(TextInput(text=text), wanted=Modality.AUDIO)
    assert voice.end(number).usage.audio_output_samples == 0
    assert voice.data(number) == b""


async def test_long_text_comes_in_parts_before_all_of_it_is_spoken(voice: Collector) -> None:
    number = voice.start(TextInput(text="one two three four five six " * 60), wanted=Modality.AUDIO)
    await voice.until(lambda: bool(voice.pieces[number]))
    assert voice.last(number) is None
    voice.engine.abort(number)
    await voice.until_over(number)
    last = voice.last(number)
    assert last is not None
    assert last.error is not None
    assert last.end is not None
    assert last.end.usage.audio_output_samples > 0


async def test_speed_changes_how_long_it_takes_to_say(voice: Collector) -> None:
    text = TextInput(text="Good morning, everybody.")
    lengths = [
        len(
            voice.data(
                await voice.run(
                    text, wanted=Modality.AUDIO, params=Params(audio=AudioParams(speed=speed))
                )
            )
        )
        for speed in (0.5, 1.0, 2.0)
    ]
    assert lengths[0] > 1.5 * lengths[1] > 2.0 * lengths[2]


async def test_streams_that_wait_for_text_do_not_hold_up_a_whole_one(voice: Collector) -> None:
    slots = voice.engine.capabilities.slots
    waiting = [
        voice.start(TextInput(text="Hello."), wanted=Modality.AUDIO, streamed=True)
        for _ in range(slots - 1)
    ]
    await voice.run(TextInput(text="Good morning."), wanted=Modality.AUDIO)
    for number in waiting:
        assert voice.last(number) is None
        voice.engine.close_input(number)
    await voice.until_over(*waiting)


async def test_a_chat_is_spoken_from_its_last_message(voice: Collector) -> None:
    message = Message(role="user", parts=(TextPart("Good morning."),))
    chat = await voice.run(ChatInput(messages=(message,)), wanted=Modality.AUDIO)
    assert voice.data(chat) == await said(voice, "Good morning.")


async def test_a_voice_that_is_not_here_is_refused_with_those_that_are(voice: Collector) -> None:
    params = Params(audio=AudioParams(voice="nobody"))
    with pytest.raises(MeshError, match="joe") as caught:
        voice.start(TextInput(text="Hello."), wanted=Modality.AUDIO, params=params)
    assert caught.value.info.param == "voice"
