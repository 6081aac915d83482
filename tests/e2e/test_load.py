import asyncio
import base64
import json
import random
import time
from collections.abc import Callable
from statistics import median

import grpc
import httpx
from openai import AsyncOpenAI

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2
from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import script, user, words
from tests.helpers.e2e_sse import Heard, hear

STREAMS = 200
TOKENS = 200
BURST = 3_000


async def test_200_streams_at_once_are_each_complete_in_order_and_end_once(
    http: httpx.AsyncClient, synthetic: E2eMesh, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(2)
    paces_ms = [rng.choice([0, 1, 2, 5, 7.5]) for _ in range(STREAMS)]
    begun_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(
                hear(http, {"model": "echo", "messages": user(tokens=TOKENS, each_ms=pace_ms)})
            )
            for pace_ms in paces_ms
        ]
    took_s = time.monotonic() - begun_s
    heard: list[Heard] = [task.result() for task in asked]
    for one in heard:
        one.complete(words(TOKENS))
    assert len({one.headers["x-request-id"] for one in heard}) == STREAMS
    record_property("tokens_per_s", round(STREAMS * TOKENS / took_s))
    record_property("first_token_p50_ms", round(1000 * median(one.first_s for one in heard), 1))
    await synthetic.settled()


async def test_the_sdk_keeps_up_with_many_streams_in_one_process(client: AsyncOpenAI) -> None:
    async def one() -> str:
        stream = await client.chat.completions.create(
            model="echo", messages=user(tokens=50, each_ms=2), stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert await asyncio.gather(*(one() for _ in range(60))) == [words(50)] * 60


async def test_a_burst_of_3000_calls_on_one_channel_has_no_spurious_failure(
    synthetic: E2eMesh, record_property: Callable[[str, object], None]
) -> None:
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text=script(tokens=3))

    async def call(stub: orchestrator_service_pb2_grpc.OrchestratorServiceStub) -> str:
        text = ""
        terminals: list[orchestrator_service_pb2.RequestTerminal] = []
        async for response in stub.Generate(request, timeout=60):
            assert not terminals
            text += "".join(output.text for output in response.outputs)
            terminals += [response.terminal] if response.HasField("terminal") else []
        assert [terminal.outcome for terminal in terminals] == [outcome_pb2.OUTCOME_COMPLETED]
        return text

    begun_s = time.monotonic()
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        results = await asyncio.gather(*(call(stub) for _ in range(BURST)), return_exceptions=True)
    failures = [result for result in results if result != words(3)]
    assert not failures, f"{len(failures)} of {BURST}, such as {failures[0]!r}"
    record_property("calls_per_s", round(BURST / (time.monotonic() - begun_s)))
    await synthetic.settled()


async def test_heavy_bodies_hold_up_neither_health_nor_other_streams(
    synthetic: E2eMesh,
    http: httpx.AsyncClient,
    record_property: Callable[[str, object], None],
) -> None:
    """20 MB of base64 and prompts of 100,000 words, one after the other."""
    sound = base64.b64encode(bytes(15_000_000)).decode()
    audio = {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}
    text = {"type": "text", "text": script("x ", tokens=1)}
    prompt = script("word " * 100_000, tokens=1)
    bodies = [
        json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()
        for model, content in (("listen", [text, audio]), ("echo", prompt))
    ]
    beats: list[float] = []
    over = False

    async def probe() -> None:
        while not over:
            begun_s = time.monotonic()
            assert (await http.get("/health")).status_code == 200
            beats.append(time.monotonic() - begun_s)
            await asyncio.sleep(0.01)

    def post(body: bytes) -> int:
        url = f"{synthetic.url}/v1/chat/completions"
        headers = {"content-type": "application/json"}
        return httpx.post(url, content=body, headers=headers, timeout=60).status_code

    heard = Heard()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(probe())
        beside = {"model": "echo", "messages": user(tokens=200, each_ms=10)}
        streaming = tasks.create_task(hear(http, beside, heard=heard))
        for body in bodies * 2:
            assert await asyncio.to_thread(post, body) == 200
        await streaming
        over = True
    heard.complete(words(200))
    beats.sort()
    p99_s = beats[int(0.99 * (len(beats) - 1))]
    record_property("health_p99_ms", round(1000 * p99_s, 1))
    assert p99_s < 0.2
    await synthetic.settled(15)
