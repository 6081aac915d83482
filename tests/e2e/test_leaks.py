import asyncio
import json
import random
from collections.abc import Callable

import grpc
import httpx

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import script, user
from tests.helpers.e2e_sse import hear

REQUESTS = 1_000
"""In each of two rounds."""
AT_ONCE = 40
GROWTH_MIB = 24
CHAT = "/v1/chat/completions"
SPEAKS = {"modalities": ["text", "audio"], "audio": {"voice": "any", "format": "pcm16"}}


async def one(
    rng: random.Random,
    http: httpx.AsyncClient,
    stub: orchestrator_service_pb2_grpc.OrchestratorServiceStub,
) -> None:
    """Do one thing of many: all kinds of answers, errors and ways to leave."""
    tokens, seed = rng.randrange(40), rng.randrange(1_000)
    match rng.randrange(12):
        case 0 | 1:
            await hear(http, {"model": "echo", "messages": user(tokens=tokens, each_ms=1)})
        case 2:
            body = {"model": "echo", "messages": user(tokens=tokens), "n": 3}
            assert (await http.post(CHAT, json=body)).status_code == 200
        case 3 | 4:
            body = {
                "model": rng.choice(["talk", "relay3"]),
                "messages": user(tokens=tokens),
                **SPEAKS,
            }
            assert (await http.post(CHAT, json=body)).status_code == 200
        case 5:
            size = rng.choice([0, 200_000])
            prompt = script(encoder={"payload_bytes": size}, painter={"payload_bytes": size})
            body = {"model": "paint", "prompt": prompt, "seed": seed}
            assert (await http.post("/v1/images/generations", json=body)).status_code == 200
        case 6:
            body = {"model": "echo", "messages": user(tokens=9, fail_at=4), "stream": seed % 2 == 0}
            assert (await http.post(CHAT, json=body)).status_code in {200, 502}
        case 7:
            body = {"model": "none", "messages": user(tokens=9)}
            assert (await http.post(CHAT, json=body)).status_code == 404
        case 8:
            body = {"model": "talk", "messages": user(tokens=9_999, each_ms=3), **SPEAKS}
            timeout = {"x-request-timeout": "0.1"}
            assert (await http.post(CHAT, json=body, headers=timeout)).status_code == 504
        case 9:
            body = {"model": "relay3", "messages": user(tokens=9_999, each_ms=3), "stream": True}
            async with http.stream("POST", CHAT, json={**body, **SPEAKS}) as answer:
                async for _ in answer.aiter_lines():
                    break
        case _:
            await _native(rng, stub)


async def _native(
    rng: random.Random, stub: orchestrator_service_pb2_grpc.OrchestratorServiceStub
) -> None:
    """Call natively: to the end, cancelled in the middle, or aborted by name."""
    pb = orchestrator_service_pb2
    request = pb.GenerateRequest()
    request.request.model = rng.choice(["echo", "talk", "film"])
    request.request.messages.add(role="user").parts.add(text=script(tokens=12, each_ms=2))
    call = stub.Generate(request, timeout=60)
    match rng.randrange(3):
        case 0:
            assert [response async for response in call][-1].HasField("terminal")
        case 1:
            await call.read()
            call.cancel()
        case _:
            metadata = dict(await call.initial_metadata() or ())
            name = str(metadata["x-request-id"])
            await stub.Abort(pb.AbortRequest(request_id=name), timeout=30)
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                assert error.code() == grpc.StatusCode.CANCELLED
            state = await stub.GetRequest(pb.GetRequestRequest(request_id=name), timeout=30)
            assert state.state == "DONE"


async def _round(mesh: E2eMesh, http: httpx.AsyncClient, seed: int) -> dict[str, float]:
    """Run the same mix again; give the memory of every process afterwards."""
    rng = random.Random(seed)
    seeds = [rng.random() for _ in range(REQUESTS)]
    room = asyncio.Semaphore(AT_ONCE)
    async with grpc.aio.insecure_channel(mesh.grpc) as channel, asyncio.TaskGroup() as tasks:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)

        async def bounded(seed: float) -> None:
            async with room:
                await one(random.Random(seed), http, stub)

        for each in seeds:
            tasks.create_task(bounded(each))
    return mesh.rss_mib()


async def test_after_2000_mixed_requests_nothing_is_left_and_memory_stands_still(
    synthetic: E2eMesh, http: httpx.AsyncClient, record_property: Callable[[str, object], None]
) -> None:
    first = await _round(synthetic, http, 1)
    second = await _round(synthetic, http, 1)
    await synthetic.settled(15)  # What a client was given by handle is kept for ten seconds more.
    growth = {name: round(second[name] - first[name], 1) for name in first}
    record_property("rss_mib", json.dumps({name: round(size) for name, size in second.items()}))
    record_property("growth_mib", json.dumps(growth))
    assert max(growth.values()) < GROWTH_MIB, growth
    for name in ("orchestrator-0", "gateway-0", "thinker-0"):
        broken = [line for line in synthetic.log(name) if line["level"] in {"ERROR", "CRITICAL"}]
        assert not broken, (name, broken[:3])
    counted = await synthetic.metrics("orchestrator-0")
    assert counted["stagemesh_orchestrator_oddities{protocol_errors}"] == 0
