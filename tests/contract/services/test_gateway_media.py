"""Speech, transcriptions, images, and bytes that go beside the link."""

import asyncio
import base64
import io
import json
import os
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.gateway.core.limits import EdgeLimits
from stagemesh.ids import new_handle_id, new_incarnation
from stagemesh.media import AudioParams, Body, Handle, ImageParams, MediaPart, Modality, TextPart
from stagemesh.outcome import error_for
from stagemesh.payload import PayloadReader, PayloadStore
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.loopback import free_address
from tests.helpers.running_gateway import running_gateway

PNG = b"\x89PNG\r\n\x1a\n and the rest"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PayloadStore]:
    """A worker's store, which the gateway reaches through its files."""
    store = PayloadStore(
        holder_id="painter-0",
        incarnation=new_incarnation(),
        address=free_address(),
        directory=tmp_path,
        bytes_max=64 * 1024 * 1024,
        lease_s=60,
    )
    yield store
    store.close()


async def _speak(asked: FakeRequest) -> None:
    for part in range(3):
        asked.audio(bytes([part, 0]) * 1000, rate_hz=22_050)
    asked.end(Modality.AUDIO)
    asked.complete()


SAMPLES = b"".join(bytes([part, 0]) * 1000 for part in range(3))


async def test_speech_is_a_whole_wav_with_the_right_sizes_unless_asked_otherwise() -> None:
    fake = FakeOrchestrator(script=_speak)
    async with running_gateway(fake) as mesh:
        reply = await mesh.openai.audio.speech.create(
            model="echo", voice="joe", input="Hello.", response_format="wav", speed=1.5
        )
    assert reply.response.headers["content-type"] == "audio/wav"
    assert int(reply.response.headers["content-length"]) == len(reply.content)
    with wave.open(io.BytesIO(reply.content)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (22_050, 1, 2)
        assert file.readframes(file.getnframes()) == SAMPLES
    request = fake.requests[0].request
    assert request.modalities == (Modality.AUDIO,)
    assert request.messages[0].parts == (TextPart("Hello."),)
    assert request.params.audio == AudioParams(voice="joe", speed=1.5)


async def test_raw_samples_are_streamed_as_they_are_made() -> None:
    first_seen = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.audio(b"\x01\x00" * 10)
        await first_seen.wait()
        asked.audio(b"\x02\x00" * 10)
        asked.end(Modality.AUDIO)
        asked.complete()

    data = b""
    async with (
        running_gateway(FakeOrchestrator(script=play)) as mesh,
        mesh.openai.audio.speech.with_streaming_response.create(
            model="echo", voice="joe", input="Hello.", response_format="pcm"
        ) as reply,
    ):
        async for chunk in reply.iter_bytes():
            data += chunk
            first_seen.set()
    assert data == b"\x01\x00" * 10 + b"\x02\x00" * 10
    assert reply.headers["x-audio-sample-rate"] == "24000"
    assert "content-length" not in reply.headers


async def test_a_streamed_wav_has_a_head_of_unknown_length() -> None:
    async with running_gateway(FakeOrchestrator(script=_speak)) as mesh:
        reply = await mesh.http.post(
            "/v1/audio/speech", json={"model": "echo", "input": "Hello.", "stream": True}
        )
    assert reply.content[:4] == b"RIFF"
    assert reply.content[40:44] == b"\xff\xff\xff\xff"
    assert reply.content[44:] == SAMPLES


async def test_speech_as_events_carries_base64_and_ends_with_usage() -> None:
    async with running_gateway(FakeOrchestrator(script=_speak)) as mesh:
        reply = await mesh.http.post(
            "/v1/audio/speech",
            json={
                "model": "echo",
                "input": "Hi",
                "response_format": "pcm",
                "stream_format": "sse",
            },
        )
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line]
    assert [event["type"] for event in events][-1] == "speech.audio.done"
    assert "usage" in events[-1]
    deltas = [base64.b64decode(event["audio"]) for event in events[:-1]]
    assert b"".join(deltas) == SAMPLES


async def test_a_stream_of_bare_samples_that_breaks_is_cut_off() -> None:
    seen = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.audio(b"\x01\x00" * 10)
        await seen.wait()
        asked.fail(error_for("replica_lost"))

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        with pytest.raises(httpx.RemoteProtocolError):
            async with mesh.http.stream(
                "POST",
                "/v1/audio/speech",
                json={"model": "echo", "input": "Hi", "response_format": "pcm"},
            ) as reply:
                async for _ in reply.aiter_bytes():
                    seen.set()


async def test_speech_that_fails_before_its_first_sample_has_a_status() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.fail(error_for("engine_error"))

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        reply = await mesh.http.post(
            "/v1/audio/speech", json={"model": "echo", "input": "Hi", "response_format": "pcm"}
        )
    assert reply.status_code == 502


@pytest.mark.parametrize("answer_format", ["json", "text"])
async def test_a_transcription_takes_a_form_and_gives_the_words(answer_format: Any) -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text(" Good")
        asked.text(" morning.")
        asked.end()
        asked.complete()

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh:
        reply = await mesh.openai.audio.transcriptions.create(
            model="echo",
            file=("speech.wav", b"RIFF-some-bytes"),
            language="en",
            temperature=0.2,
            response_format=answer_format,
        )
    text = reply if isinstance(reply, str) else reply.text
    assert text.strip() == "Good morning."
    request = fake.requests[0].request
    part = request.messages[0].parts[0]
    assert isinstance(part, MediaPart)
    assert part.body.inline == b"RIFF-some-bytes"
    assert (part.body.media_type, part.param) == ("audio/wav", "file")
    assert request.params.audio.language == "en"
    assert request.params.sampling.temperature == 0.2
    assert request.modalities == (Modality.TEXT,)


async def test_large_input_goes_beside_the_link_and_is_gone_when_the_request_is(
    tmp_path: Path,
) -> None:
    recording = bytes(range(256)) * 8192
    heard: list[bytes] = []

    async def play(asked: FakeRequest) -> None:
        part = asked.request.messages[0].parts[0]
        assert isinstance(part, MediaPart)
        assert part.body.handle is not None
        assert part.body.inline == b""
        async with PayloadReader() as reader:
            heard.append(bytes(await reader.get(part.body.handle)))
        asked.end()
        asked.complete()

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake, payload_directory=tmp_path) as mesh:
        await mesh.openai.audio.transcriptions.create(model="echo", file=("a.wav", recording))
        kept = os.listdir(tmp_path)
    assert heard == [recording]
    assert [name.endswith("-probe") for name in kept] == [True]
    assert os.listdir(tmp_path) == []


async def test_a_store_without_room_refuses_the_request_as_overloaded(tmp_path: Path) -> None:
    fake = FakeOrchestrator()
    async with running_gateway(fake, payload_directory=tmp_path, payload_bytes_max=1000) as mesh:
        reply = await mesh.http.post(
            "/v1/audio/transcriptions",
            data={"model": "echo"},
            files={"file": ("a.wav", b"\0" * 100_000)},
        )
    assert reply.status_code == 429
    assert reply.json()["error"]["code"] == "payload_store_full"
    assert fake.requests == []


async def test_images_come_in_the_order_of_their_choices_inline_or_by_handle(
    store: PayloadStore,
) -> None:
    large = PNG + b"\0" * 100_000

    async def play(asked: FakeRequest) -> None:
        handle = store.put(large, asked.request_id)
        asked.image(Body(handle=handle, media_type="image/png", shape=(64, 48)), choice=1)
        asked.image(Body(inline=PNG, media_type="image/png", shape=(64, 48)), choice=0)
        for choice in (0, 1):
            asked.end(Modality.IMAGE, choice=choice)
        asked.complete()

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh:
        reply = await mesh.openai.images.generate(
            model="echo",
            prompt="a red circle",
            n=2,
            size="64x48",
            response_format="b64_json",
            extra_body={
                "negative_prompt": "blue",
                "num_inference_steps": 4,
                "guidance_scale": 2.5,
                "seed": 9,
            },
        )
    assert reply.data is not None
    assert [base64.b64decode(image.b64_json or "") for image in reply.data] == [PNG, large]
    assert reply.size == "64x48"
    request = fake.requests[0].request
    assert (request.choices, request.seed, request.modalities) == (2, 9, (Modality.IMAGE,))
    assert request.params.image == ImageParams(
        width=64, height=48, steps=4, guidance_scale=2.5, negative_prompt="blue"
    )


async def _told(asked: FakeRequest) -> str:
    """Wait until the gateway says that bytes are lost; give the reason of the end."""
    await asked.lost_handles.get()
    return "handle_lost"


async def test_bytes_that_cannot_be_fetched_end_the_request_and_are_reported(
    store: PayloadStore,
) -> None:
    lost = ""

    async def play(asked: FakeRequest) -> None:
        nonlocal lost
        handle = store.put(PNG, asked.request_id)
        store.release(asked.request_id)
        lost = handle.handle_id
        asked.image(Body(handle=handle, media_type="image/png"))
        asked.fail(error_for(await _told(asked)))

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh:
        reply = await mesh.http.post(
            "/v1/images/generations", json={"model": "echo", "prompt": "a red circle"}
        )
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "handle_lost"
    assert fake.handles_lost == [lost]


async def test_bytes_are_waited_for_no_longer_than_fetch_s() -> None:
    async def play(asked: FakeRequest) -> None:
        handle = Handle(
            handle_id=new_handle_id(),
            request_id=asked.request_id,
            holder_id="gone",
            incarnation=1,
            address=free_address(),
            size_bytes=10,
        )
        asked.image(Body(handle=handle, media_type="image/png"))
        asked.fail(error_for(await _told(asked)))

    async with running_gateway(FakeOrchestrator(script=play), fetch_s=0.05) as mesh:
        reply = await mesh.http.post(
            "/v1/images/generations", json={"model": "echo", "prompt": "a red circle"}
        )
    assert reply.json()["error"]["code"] == "handle_lost"


async def test_a_reply_that_outgrows_its_bound_is_ended() -> None:
    async def play(asked: FakeRequest) -> None:
        for _ in range(20):
            asked.audio(b"\0\0" * 1000)
        await asked.aborted.wait()

    limits = EdgeLimits(reply_bytes_max=10_000)
    async with running_gateway(FakeOrchestrator(script=play), limits=limits) as mesh:
        reply = await mesh.http.post("/v1/audio/speech", json={"model": "echo", "input": "Hi"})
        await mesh.orchestrator.requests[0].aborted.wait()
    assert reply.status_code == 502
    assert "too large" in reply.json()["error"]["message"]
