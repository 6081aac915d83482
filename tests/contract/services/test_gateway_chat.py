"""Chat over HTTP: the official SDK on one side, a scripted orchestrator on the other."""

import asyncio
import base64
import io
import json
import wave
from typing import Any

import httpx
import pytest
from openai import APIError, AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk

from stagemesh.media import Modality, Sampling
from stagemesh.outcome import FinishReason, Usage, error_for
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.running_gateway import running_gateway

HELLO: Any = [{"role": "user", "content": "Hi"}]


async def _chunks(client: AsyncOpenAI, **body: Any) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(model="echo", messages=HELLO, stream=True, **body)
    return [chunk async for chunk in stream]


def _text(chunks: list[ChatCompletionChunk], choice: int = 0) -> str:
    return "".join(
        one.delta.content or "" for chunk in chunks for one in chunk.choices if one.index == choice
    )


def _reasons(chunks: list[ChatCompletionChunk]) -> list[tuple[int, str]]:
    return [
        (one.index, one.finish_reason)
        for chunk in chunks
        for one in chunk.choices
        if one.finish_reason
    ]


async def test_a_chat_is_answered_whole() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        reply = await mesh.openai.chat.completions.create(model="echo", messages=HELLO)
    assert reply.choices[0].message.content == "Hello, world"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (5, 3)
    assert reply.usage.total_tokens == 8
    assert reply._request_id == f"req_{reply.id.removeprefix('chatcmpl-')}"


async def test_a_stream_has_a_delta_for_each_token_one_finish_and_one_usage() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        chunks = await _chunks(mesh.openai, stream_options={"include_usage": True})
    assert [c.choices[0].delta.content for c in chunks if c.choices][:4] == [
        "", "Hello", ",", " world",
    ]  # fmt: skip
    assert chunks[0].choices[0].delta.role == "assistant"
    assert _reasons(chunks) == [(0, "stop")]
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 8
    assert len({chunk.id for chunk in chunks}) == 1


async def test_a_stream_on_the_wire_ends_with_done_once_and_tells_usage_only_if_asked() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        answer = await mesh.http.post(
            "/v1/chat/completions", json={"model": "echo", "messages": HELLO, "stream": True}
        )
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    bodies = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert all("usage" not in body for body in bodies)


async def test_a_stop_at_the_limit_is_told_as_length() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text("cut")
        asked.end(reason=FinishReason.LENGTH)
        asked.complete()

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        chunks = await _chunks(mesh.openai)
    assert _reasons(chunks) == [(0, "length")]


async def test_choices_are_told_apart_and_each_finishes_once() -> None:
    async def play(asked: FakeRequest) -> None:
        for token in range(5):
            for choice in (1, 0, 2):
                asked.text(f" {choice}w{token}", choice=choice)
        for choice in (2, 0, 1):
            asked.end(choice=choice)
        asked.complete()

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        chunks = await _chunks(mesh.openai, n=3)
        whole = await mesh.openai.chat.completions.create(model="echo", messages=HELLO, n=3)
    wanted = ["".join(f" {choice}w{token}" for token in range(5)) for choice in range(3)]
    assert [_text(chunks, choice) for choice in range(3)] == wanted
    assert sorted(_reasons(chunks)) == [(0, "stop"), (1, "stop"), (2, "stop")]
    assert [choice.message.content for choice in whole.choices] == wanted


async def test_what_the_client_tunes_reaches_the_orchestrator() -> None:
    fake = FakeOrchestrator()
    async with running_gateway(fake) as mesh:
        await mesh.openai.chat.completions.create(
            model="echo",
            messages=[{"role": "system", "content": "Be brief."}, *HELLO],
            n=2,
            seed=-7,
            temperature=0.5,
            top_p=0.9,
            max_completion_tokens=12,
            stop=["a", "b"],
            frequency_penalty=0.25,
            presence_penalty=-0.25,
            extra_body={
                "top_k": -1,
                "min_p": 0.1,
                "repetition_penalty": 1.1,
                "min_tokens": 2,
                "ignore_eos": True,
            },
            extra_headers={"X-Request-Id": "mine", "X-Request-Timeout": "7.5"},
        )
    asked = fake.requests[0]
    request = asked.request
    assert asked.deadline_left_s == pytest.approx(7.5, abs=1e-3)
    assert request.label == "mine"
    assert (request.seed, request.seed_explicit, request.choices) == (2**64 - 7, True, 2)
    assert request.modalities == (Modality.TEXT,)
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.params.sampling == Sampling(
        tokens_max=12,
        tokens_min=2,
        temperature=0.5,
        top_p=0.9,
        top_k=0,
        min_p=0.1,
        frequency_penalty=0.25,
        presence_penalty=-0.25,
        repetition_penalty=1.1,
        stop=("a", "b"),
        ignore_eos=True,
    )


async def _speak(asked: FakeRequest) -> None:
    asked.text("One.")
    asked.audio(b"\x01\x00" * 100)
    asked.text(" Two.")
    asked.end()
    asked.audio(b"\x02\x00" * 50)
    asked.end(Modality.AUDIO)
    asked.complete()


async def test_spoken_chat_interleaves_text_and_audio_and_finishes_once() -> None:
    async with running_gateway(FakeOrchestrator(script=_speak)) as mesh:
        chunks = await _chunks(
            mesh.openai, modalities=["text", "audio"], audio={"voice": "joe", "format": "pcm16"}
        )
    deltas = [chunk.choices[0].delta for chunk in chunks]
    kinds = ["audio" if delta.audio and delta.audio.data else delta.content for delta in deltas]
    assert kinds[1:5] == ["One.", "audio", " Two.", "audio"]
    spoken = [delta.audio for delta in deltas if delta.audio is not None]
    samples = b"".join(base64.b64decode(audio.data) for audio in spoken if audio.data)
    assert samples == b"\x01\x00" * 100 + b"\x02\x00" * 50
    assert "".join(audio.transcript or "" for audio in spoken) == "One. Two."
    assert spoken[-1].expires_at is not None
    assert len({audio.id for audio in spoken}) == 1
    assert _reasons(chunks) == [(0, "stop")]
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("audio_format", ["wav", "pcm16"])
async def test_spoken_chat_is_answered_whole_in_the_format_that_was_asked(
    audio_format: str,
) -> None:
    async with running_gateway(FakeOrchestrator(script=_speak)) as mesh:
        audio: Any = {"voice": "joe", "format": audio_format}
        reply = await mesh.openai.chat.completions.create(
            model="echo", messages=HELLO, modalities=["text", "audio"], audio=audio
        )
    message = reply.choices[0].message
    assert message.content == "One. Two."
    assert message.audio is not None
    assert message.audio.transcript == "One. Two."
    data = base64.b64decode(message.audio.data)
    if audio_format == "wav":
        with wave.open(io.BytesIO(data)) as file:
            assert (file.getframerate(), file.getnframes()) == (24_000, 150)
            data = file.readframes(150)
    assert data == b"\x01\x00" * 100 + b"\x02\x00" * 50


async def test_an_error_after_the_first_byte_is_one_event_and_no_done() -> None:
    seen = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.text("Hel")
        await seen.wait()
        asked.text("lo")
        asked.fail(error_for("replica_lost", stage="thinker"))

    body: Any = {"model": "echo", "messages": HELLO, "stream": True}
    lines = []
    async with (
        running_gateway(FakeOrchestrator(script=play)) as mesh,
        mesh.http.stream("POST", "/v1/chat/completions", json=body) as raw,
    ):
        async for line in raw.aiter_lines():
            seen.set()
            lines += [json.loads(line.removeprefix("data: "))] if line else []
    assert raw.status_code == httpx.codes.OK
    assert [line["choices"][0]["delta"]["content"] for line in lines[:-1]] == ["", "Hel", "lo"]
    error = lines[-1]["error"]
    assert (error["code"], error["type"], error["stage"]) == (
        "replica_lost", "server_error", "thinker",
    )  # fmt: skip
    assert error["request_id"] == raw.headers["x-request-id"]


async def test_the_sdk_raises_an_error_that_comes_after_the_first_byte() -> None:
    seen = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.text("Hel")
        await seen.wait()
        asked.fail(error_for("engine_error"))

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        stream = await mesh.openai.chat.completions.create(
            model="echo", messages=HELLO, stream=True
        )
        with pytest.raises(APIError, match="engine") as caught:
            async for _ in stream:
                seen.set()
    assert caught.value.type == "server_error"
    assert seen.is_set()


async def test_the_synchronous_sdk_works_too() -> None:
    def ask(url: str) -> tuple[str | None, str]:
        with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            whole = client.chat.completions.create(model="echo", messages=HELLO)
            with client.chat.completions.create(
                model="echo", messages=HELLO, stream=True
            ) as stream:
                streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            return whole.choices[0].message.content, streamed

    async with running_gateway(FakeOrchestrator()) as mesh:
        assert await asyncio.to_thread(ask, mesh.url) == ("Hello, world", "Hello, world")


async def test_usage_that_was_cached_is_told() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.end()
        asked.complete(Usage(prompt_tokens=9, cached_tokens=4))

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        reply = await mesh.openai.chat.completions.create(model="echo", messages=HELLO)
    assert reply.choices[0].message.content == ""
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 4


async def test_an_earlier_spoken_reply_is_taken_by_its_transcript() -> None:
    fake = FakeOrchestrator(script=_speak)
    async with running_gateway(fake) as mesh:
        first = await mesh.openai.chat.completions.create(
            model="echo",
            messages=HELLO,
            modalities=["text", "audio"],
            audio={"voice": "joe", "format": "wav"},
        )
        said = first.choices[0].message.model_dump()
        await mesh.http.post(
            "/v1/chat/completions",
            json={"model": "echo", "messages": [*HELLO, said | {"content": None}]},
        )
    assert fake.requests[1].request.messages[1].text == "One. Two."


async def test_the_answer_names_the_request_by_our_id_not_by_the_clients() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        answer: httpx.Response = await mesh.http.post(
            "/v1/chat/completions",
            json={"model": "echo", "messages": HELLO},
            headers={"X-Request-Id": "mine"},
        )
        asked = mesh.orchestrator.requests[0]
    assert answer.headers.get_list("x-request-id") == [asked.request_id]
    assert asked.request.label == "mine"
