"""Small real models behind the same mesh: the light one, and once the one with vLLM."""

import asyncio
import base64
import io
import wave
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from PIL import Image

from tests.helpers.e2e_mesh import ROOT, E2eMesh, running_mesh
from tests.helpers.e2e_sse import hear
from tools.demo.checks import loudness, pcm_of_wav, plausible_s, word_error
from tools.shapes.drawing import Judge

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

SENTENCE = "The little boat sailed across the quiet lake in the early morning."
QUESTION: Any = [{"role": "user", "content": "Tell me about the sea in a few sentences."}]
ASK_ALOUD = "Please explain in three short sentences why people like to drink tea."


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Every model but vLLM's."""
    file = ROOT / "pipelines" / "demo-light.yaml"
    with running_mesh(file, tmp_path_factory.mktemp("light")) as mesh:
        yield mesh
        code, took_s = mesh.stop()
        assert code == 0, mesh.said
        assert took_s < 15


@pytest.fixture
async def client(light: E2eMesh) -> AsyncIterator[AsyncOpenAI]:
    async with light.openai(timeout=120) as client:
        yield client


def aloud(wav: bytes) -> Any:
    """Make the messages of a chat whose only one is spoken."""
    audio = {"data": base64.b64encode(wav).decode(), "format": "wav"}
    return [{"role": "user", "content": [{"type": "input_audio", "input_audio": audio}]}]


async def spoken(client: AsyncOpenAI, text: str) -> bytes:
    answer = await client.audio.speech.create(
        model="piper-joe", voice="joe", input=text, response_format="wav"
    )
    return answer.content


async def chat(client: AsyncOpenAI, **asked: Any) -> tuple[str, list[str], Any]:
    """Stream a chat; give its text, its finishes and its usage."""
    text, finishes, usage = "", [], None
    stream = await client.chat.completions.create(
        model="smollm2", stream=True, stream_options={"include_usage": True}, **asked
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finishes += [choice.finish_reason] if choice.finish_reason else []
    return text, finishes, usage


async def test_a_chat_streams_its_tokens_and_counts_them(client: AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"messages": QUESTION, "max_completion_tokens": 40, "temperature": 0}
    text, finishes, usage = await chat(client, **asked, extra_body={"min_tokens": 40})
    assert len(text.split()) > 10
    assert finishes == ["length"]
    assert usage.completion_tokens == 40
    assert usage.prompt_tokens > 10
    streamed, _, _ = await chat(client, **asked)
    whole = await client.chat.completions.create(model="smollm2", **asked)
    assert whole.choices[0].message.content == streamed


async def test_a_stop_string_ends_the_text_of_a_real_model(client: AsyncOpenAI) -> None:
    text, _, _ = await chat(client, messages=QUESTION, max_completion_tokens=40, temperature=0)
    word = text.split()[5]
    cut, finishes, _ = await chat(
        client, messages=QUESTION, max_completion_tokens=40, temperature=0, stop=[word]
    )
    assert finishes == ["stop"]
    assert cut == text[: text.index(word)]


async def test_more_than_the_context_holds_is_the_clients_mistake(client: AsyncOpenAI) -> None:
    too_long: Any = [{"role": "user", "content": "word " * 12_000}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="smollm2", messages=too_long, stream=stream)
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(
            model="smollm2", messages=QUESTION, max_completion_tokens=100_000
        )
    assert refused.value.code == "context_length_exceeded"


async def test_a_chat_that_nobody_waits_for_stops_between_two_tokens(
    light: E2eMesh, client: AsyncOpenAI
) -> None:
    stream = await client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        max_completion_tokens=400,
        stream=True,
        extra_body={"min_tokens": 400},
    )
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await light.settled(3)


async def test_speech_is_a_wav_or_raw_samples_as_they_are_made(
    light: E2eMesh, client: AsyncOpenAI
) -> None:
    pcm, rate_hz = pcm_of_wav(await spoken(client, SENTENCE))
    assert plausible_s(SENTENCE, len(pcm) / 2 / rate_hz)
    assert loudness(pcm) > 0.01
    long = " ".join([SENTENCE] * 4)
    async with (
        httpx.AsyncClient(base_url=light.url, timeout=120) as http,
        http.stream(
            "POST",
            "/v1/audio/speech",
            json={"model": "piper-joe", "input": long, "response_format": "pcm"},
        ) as answer,
    ):
        assert answer.headers["x-audio-sample-rate"] == str(rate_hz)
        pieces = [piece async for piece in answer.aiter_raw()]
    assert len(pieces) > 1, "it streams"
    raw = b"".join(pieces)
    assert plausible_s(long, len(raw) / 2 / rate_hz)
    assert loudness(raw) > 0.01


async def test_what_was_spoken_is_understood(client: AsyncOpenAI) -> None:
    wav = await spoken(client, SENTENCE)
    for answer_format in ("json", "text"):
        heard = await client.audio.transcriptions.create(
            model="whisper-tiny", file=("speech.wav", wav), response_format=answer_format
        )
        text = heard if isinstance(heard, str) else heard.text
        assert word_error(SENTENCE, text) < 0.2, text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.wav", b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(100)),
        ("a.wav", b"this is no sound at all" * 100),
        ("a.mp3", bytes(range(256)) * 40),
        ("a.flac", b"fLaC" + bytes(1000)),
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(1000)),
        ("a.wav", b"\0"),
    ],
    ids=["no-format", "text", "noise", "flac", "png", "one-byte"],
)
async def test_audio_that_cannot_be_decoded_is_the_clients_mistake(
    client: AsyncOpenAI, name: str, data: bytes
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.audio.transcriptions.create(model="whisper-tiny", file=(name, data))
    assert (refused.value.code, refused.value.param) == ("undecodable_audio", "file")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="smollm2-voice", messages=aloud(data))
    assert refused.value.code == "undecodable_audio"
    assert refused.value.param == "messages[0].content[0].input_audio.data"


async def test_silence_and_a_tiny_sound_are_transcribed_and_break_nothing(
    client: AsyncOpenAI,
) -> None:
    for frames in (0, 1, 16_000):
        sound = io.BytesIO()
        with wave.open(sound, "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", "NONE"))
            file.writeframes(bytes(2 * frames))
        try:
            heard = await client.audio.transcriptions.create(
                model="whisper-tiny", file=("a.wav", sound.getvalue())
            )
        except openai.BadRequestError as refused:
            assert (frames, refused.code) == (0, "undecodable_audio")
        else:
            assert len(heard.text) < 100


async def spoken_chat(client: AsyncOpenAI) -> tuple[str, bytes, list[str]]:
    """Ask aloud, and give what comes: text, samples, and the order of both."""
    text, pcm = "", b""
    order: list[str] = []
    stream = await client.chat.completions.create(
        model="smollm2-voice",
        messages=aloud(await spoken(client, ASK_ALOUD)),
        modalities=["text", "audio"],
        audio={"voice": "joe", "format": "pcm16"},
        max_completion_tokens=96,
        temperature=0,
        stream=True,
        extra_body={"min_tokens": 40},
    )
    async for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                text, order = text + choice.delta.content, [*order, "text"]
            if choice.delta.audio and choice.delta.audio.data:
                pcm += base64.b64decode(choice.delta.audio.data)
                order.append("audio")
    return text, pcm, order


def interleaved(order: list[str]) -> bool:
    return order.index("audio") < len(order) - 1 - order[::-1].index("text")


async def understood(client: AsyncOpenAI, text: str, pcm: bytes) -> float:
    """Transcribe what was said; give the word error against what was written."""
    rate_hz = pcm_of_wav(await spoken(client, "One."))[1]
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, rate_hz, 0, "NONE", "NONE"))
        file.writeframes(pcm)
    heard = await client.audio.transcriptions.create(
        model="whisper-tiny", file=("a.wav", sound.getvalue())
    )
    return word_error(text, heard.text)


async def test_a_spoken_question_is_answered_in_text_and_speech_at_once(
    client: AsyncOpenAI,
) -> None:
    text, pcm, order = await spoken_chat(client)
    assert interleaved(order)
    assert await understood(client, text, pcm) <= 0.35


async def test_a_voice_that_does_not_exist_is_the_clients_mistake(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.audio.speech.create(
            model="piper-joe", voice="nobody", input=SENTENCE, response_format="wav"
        )
    assert refused.value.param == "voice"


async def test_a_picture_shows_what_was_asked_for(client: AsyncOpenAI) -> None:
    answer = await client.images.generate(
        model="shapes",
        prompt="a red circle on a white background",
        size="32x32",
        n=2,
        extra_body={"seed": 3, "negative_prompt": "a blue square"},
    )
    pictures = [
        Image.open(io.BytesIO(base64.b64decode(one.b64_json or ""))) for one in answer.data or []
    ]
    assert [(one.format, one.size) for one in pictures] == [("PNG", (32, 32))] * 2
    assert ("red", "white") in [Judge().colours(one) for one in pictures]
    for size in ("0x0", "48x48", "1000000x1000000"):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.images.generate(model="shapes", prompt="a red circle", size=size)
        assert refused.value.param == "size"


async def test_afterwards_the_light_mesh_is_as_it_was(light: E2eMesh) -> None:
    assert all(one["state"] == "ready" for one in await light.status())
    await light.settled(15)
    for name in light.pids():
        broken = [line for line in light.log(name) if line["level"] in {"ERROR", "CRITICAL"}]
        assert not broken, (name, broken[:3])


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not part of this installation")
async def test_vllm_serves_the_same_jobs_and_runs_two_requests_as_one_batch(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("full")
    with running_mesh(ROOT / "pipelines" / "demo.yaml", folder) as mesh:
        async with mesh.openai(timeout=200) as client:
            text, finishes, usage = await chat(
                client, messages=QUESTION, max_completion_tokens=30, temperature=0
            )
            assert (finishes, usage.completion_tokens) == (["length"], 30)
            assert len(text.split()) > 10

            drawn = [
                await chat(
                    client, messages=QUESTION, max_completion_tokens=24, temperature=1, seed=seed
                )
                for seed in (5, 5, 6)
            ]
            assert drawn[0][0] == drawn[1][0]
            assert drawn[0][0] != drawn[2][0]

            steps = "stagemesh_worker_engine_steps_total"
            before = (await mesh.metrics("thinker-0"))[steps]
            body = {
                "model": "smollm2", "messages": QUESTION, "max_completion_tokens": 60,
                "min_tokens": 60, "temperature": 0,
            }  # fmt: skip
            async with httpx.AsyncClient(base_url=mesh.url, timeout=200) as http:
                pair = await asyncio.gather(hear(http, body), hear(http, body))
            made = (await mesh.metrics("thinker-0"))[steps] - before
            assert [one.finishes for one in pair] == [[(0, "length")]] * 2
            assert made < 90, f"{made} steps for two answers of 60 tokens each"

            answer, pcm, order = await spoken_chat(client)
            assert interleaved(order)
            assert await understood(client, answer, pcm) <= 0.35
            await mesh.settled(15)
        code, took_s = mesh.stop()
        assert code == 0, mesh.said
        assert took_s < 15
