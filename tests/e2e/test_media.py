import asyncio
import base64
import io
import struct
import wave
from typing import Any

import grpc
import httpx
import pytest
from openai import AsyncOpenAI

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import media_pb2, outcome_pb2, request_pb2
from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import (
    RATE_HZ,
    UNIT_SAMPLES,
    colour,
    colour_of_png,
    pcm,
    script,
    user,
    words,
)


async def test_talk_gives_text_and_every_sample_of_it(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="talk",
        messages=user(tokens=40),
        modalities=["text", "audio"],
        audio={"voice": "any", "format": "wav"},
        seed=7,
    )
    message = answer.choices[0].message
    assert message.content == words(40)
    assert message.audio is not None
    assert message.audio.transcript == words(40)
    with wave.open(io.BytesIO(base64.b64decode(message.audio.data))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE_HZ, 1, 2)
        assert file.readframes(file.getnframes()) == pcm(7, 40 * UNIT_SAMPLES)


@pytest.mark.parametrize("model", ["talk", "relay3"])
async def test_streamed_audio_has_no_sample_missing_or_twice(
    client: AsyncOpenAI, model: str
) -> None:
    """Longer than every window on its way: credit must flow back for it to come to an end."""
    tokens = 400
    stream = await client.chat.completions.create(
        model=model,
        messages=user(tokens=tokens),
        modalities=["text", "audio"],
        audio={"voice": "any", "format": "pcm16"},
        seed=21,
        stream=True,
    )
    text, audio, finishes, last_text_at, first_audio_at = "", b"", [], 0, 0
    at = 0
    async for chunk in stream:
        at += 1
        choice = chunk.choices[0]
        if choice.delta.content:
            text, last_text_at = text + choice.delta.content, at
        if choice.delta.audio and choice.delta.audio.data:
            first_audio_at = first_audio_at or at
            audio += base64.b64decode(choice.delta.audio.data)
        finishes += [choice.finish_reason] if choice.finish_reason else []
    assert text == words(tokens)
    assert audio == pcm(21, tokens * UNIT_SAMPLES)
    assert finishes == ["stop"]
    assert first_audio_at < last_text_at


async def test_both_choices_of_a_talk_have_text_and_audio_of_their_own_seed(
    client: AsyncOpenAI,
) -> None:
    answer = await client.chat.completions.create(
        model="talk",
        messages=user(tokens=5),
        modalities=["text", "audio"],
        audio={"voice": "any", "format": "pcm16"},
        seed=100,
        n=2,
    )
    assert [choice.message.content for choice in answer.choices] == [words(5)] * 2
    for index, choice in enumerate(answer.choices):
        assert choice.message.audio is not None
        samples = base64.b64decode(choice.message.audio.data)
        assert samples == pcm(100 + index, 5 * UNIT_SAMPLES)


async def test_a_stage_that_nobody_wants_is_not_run(
    client: AsyncOpenAI, synthetic: E2eMesh
) -> None:
    ended = "stagemesh_worker_attempts_total"
    pools = ("thinker", "talker", "codec", "coder")
    before = {pool: await synthetic.pool_metric(pool, ended) for pool in pools}
    for model in ("talk", "relay3"):
        for _ in range(4):
            answer = await client.chat.completions.create(
                model=model, messages=user(tokens=3), modalities=["text"]
            )
            assert answer.choices[0].message.content == words(3)
            assert answer.choices[0].message.audio is None
    await synthetic.settled()
    ran = {pool: await synthetic.pool_metric(pool, ended) - before[pool] for pool in pools}
    assert ran == {"thinker": 8, "talker": 0, "codec": 0, "coder": 0}


async def test_speech_of_a_pipeline_with_a_voice_is_whole_in_either_format(
    client: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    text = script(tokens=30)
    answer = await client.audio.speech.create(
        model="talk", voice="any", input=text, response_format="wav", extra_body={"seed": 3}
    )
    riff, size, kind = struct.unpack("<4sI4s", answer.content[:12])
    assert (riff, kind, size) == (b"RIFF", b"WAVE", len(answer.content) - 8)
    assert answer.content[44:] == pcm(3, 30 * UNIT_SAMPLES)
    async with http.stream(
        "POST",
        "/v1/audio/speech",
        json={"model": "talk", "input": text, "response_format": "pcm", "seed": 3},
    ) as streamed:
        assert streamed.headers["x-audio-sample-rate"] == str(RATE_HZ)
        assert b"".join([piece async for piece in streamed.aiter_raw()]) == pcm(
            3, 30 * UNIT_SAMPLES
        )


async def test_pictures_have_the_colour_of_their_seed_and_the_size_asked_for(
    client: AsyncOpenAI,
) -> None:
    answer = await client.images.generate(
        model="paint", prompt="a square", size="64x32", n=2, extra_body={"seed": 9}
    )
    pictures = [base64.b64decode(image.b64_json or "") for image in answer.data or []]
    assert [colour_of_png(picture) for picture in pictures] == [
        ((64, 32), colour(9)),
        ((64, 32), colour(10)),
    ]


async def test_a_companion_runs_beside_its_stage_once_for_all_choices(
    client: AsyncOpenAI, synthetic: E2eMesh
) -> None:
    ended = "stagemesh_worker_attempts_total"
    before = [await synthetic.pool_metric(pool, ended) for pool in ("encoder", "painter")]
    await client.images.generate(
        model="paint", prompt="a square", n=3, extra_body={"negative_prompt": "a circle"}
    )
    await synthetic.settled()
    after = [await synthetic.pool_metric(pool, ended) for pool in ("encoder", "painter")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 3]


async def test_a_large_picture_and_a_large_tensor_go_by_handle(client: AsyncOpenAI) -> None:
    prompt = script(
        "x ", encoder={"payload_bytes": 5_000_000}, painter={"payload_bytes": 3_000_000}
    )
    answer = await client.images.generate(model="paint", prompt=prompt, extra_body={"seed": 4})
    assert answer.data
    picture = base64.b64decode(answer.data[0].b64_json or "")
    assert len(picture) == 3_000_000
    assert colour_of_png(picture)[1] == colour(4)


async def test_spoken_input_reaches_the_listener_small_and_large(client: AsyncOpenAI) -> None:
    for seconds in (0.1, 20):
        sound = io.BytesIO()
        with wave.open(sound, "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", "NONE"))
            file.writeframes(bytes(int(seconds * 32_000)))
        audio = {"data": base64.b64encode(sound.getvalue()).decode(), "format": "wav"}
        spoken: Any = {"type": "input_audio", "input_audio": audio}
        written: Any = {"type": "text", "text": script(tokens=6)}
        answer = await client.chat.completions.create(
            model="listen", messages=[{"role": "user", "content": [written, spoken]}]
        )
        assert answer.choices[0].message.content == words(6)
        heard = await client.audio.transcriptions.create(
            model="listen", file=("speech.wav", sound.getvalue())
        )
        assert heard.text


async def test_a_film_has_every_frame_in_order(synthetic: E2eMesh) -> None:
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "film"
    request.request.seed = 5
    message = request.request.messages.add(role="user")
    message.parts.add(text=script(image_px=16, projector={"tokens": 24, "each_ms": 2}))
    frames: list[tuple[int, bytes]] = []
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        responses = [response async for response in stub.Generate(request, timeout=30)]
    for response in responses:
        for output in response.outputs:
            assert (output.stage, output.modality) == ("projector", media_pb2.MODALITY_VIDEO)
            frames.append((output.pos, output.body.inline))
    assert [pos for pos, _ in frames] == list(range(24))
    assert [colour_of_png(data)[1] for _, data in frames] == [colour(5, at) for at in range(24)]
    assert [r.HasField("terminal") for r in responses] == [False] * (len(responses) - 1) + [True]
    assert responses[-1].terminal.outcome == outcome_pb2.OUTCOME_COMPLETED


async def test_a_grpc_client_gets_and_gives_large_bytes_without_ever_seeing_a_handle(
    synthetic: E2eMesh,
) -> None:
    pb = orchestrator_service_pb2
    painted, heard = pb.GenerateRequest(), pb.GenerateRequest()
    painted.request.model, painted.request.seed = "paint", 12
    painted.request.messages.add(role="user").parts.add(
        text=script("x ", painter={"payload_bytes": 2_000_000})
    )
    heard.request.model = "listen"
    message = heard.request.messages.add(role="user")
    message.parts.add(text=script(tokens=3))
    message.parts.add().media.MergeFrom(
        request_pb2.MediaPart(
            modality=media_pb2.MODALITY_AUDIO,
            body=media_pb2.Body(inline=bytes(3_000_000), media_type="audio/wav"),
        )
    )
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        responses = [response async for response in stub.Generate(painted, timeout=30)]
        answers = [response async for response in stub.Generate(heard, timeout=30)]
    outputs = [output for response in responses for output in response.outputs]
    assert not any(output.body.HasField("handle") for output in outputs)
    assert max(len(output.body.inline) for output in outputs) <= 256 * 1024
    assert [output.more for output in outputs] == [True] * (len(outputs) - 1) + [False]
    picture = b"".join(output.body.inline for output in outputs)
    assert (len(picture), colour_of_png(picture)[1]) == (2_000_000, colour(12))
    assert "".join(output.text for answer in answers for output in answer.outputs) == words(3)


async def test_many_talks_at_once_do_not_mix_their_samples(client: AsyncOpenAI) -> None:
    async def talk(seed: int) -> None:
        answer = await client.chat.completions.create(
            model="relay3",
            messages=user(tokens=20, each_ms=seed % 5),
            modalities=["text", "audio"],
            audio={"voice": "any", "format": "pcm16"},
            seed=seed,
        )
        message = answer.choices[0].message
        assert message.audio is not None
        assert message.content == words(20)
        assert base64.b64decode(message.audio.data) == pcm(seed, 20 * UNIT_SAMPLES)

    async with asyncio.TaskGroup() as tasks:
        for seed in range(40):
            tasks.create_task(talk(seed))
