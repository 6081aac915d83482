"""What a client tunes reaches the stage that it is meant for, and no other."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import openai
import pytest
from grpc import aio

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2, request_pb2
from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import UNIT_SAMPLES, script, user, words
from tests.helpers.e2e_sse import hear

CHAT = "/v1/chat/completions"
AUDIO: Any = {"modalities": ["text", "audio"], "audio": {"voice": "any", "format": "pcm16"}}


@pytest.fixture
async def stub(
    synthetic: E2eMesh,
) -> AsyncIterator[orchestrator_service_pb2_grpc.OrchestratorServiceStub]:
    async with aio.insecure_channel(synthetic.grpc) as channel:
        yield orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)


async def test_what_a_chat_says_of_tokens_never_reaches_the_stages_after_it(
    http: httpx.AsyncClient,
) -> None:
    """The limit and the stop string are the thinker's: the talker says all that it is given."""
    body = {
        "model": "relay3",
        "messages": user(thinker={"tokens": 9}, talker={"tokens": 12}),
        "max_completion_tokens": 6,
        "stop": " w11",
        "temperature": 0.3,
        **AUDIO,
    }
    heard = await hear(http, body)
    assert heard.text() == words(6)
    assert len(heard.sound()) == 12 * UNIT_SAMPLES * 2


async def test_a_stage_is_tuned_by_its_name(http: httpx.AsyncClient) -> None:
    body = {
        "model": "relay3",
        "messages": user(thinker={"tokens": 9}, talker={"tokens": 12}),
        "stage_params": {"talker": {"sampling": {"tokens_max": 5}}, "codec": {}},
        **AUDIO,
    }
    heard = await hear(http, body)
    assert heard.text() == words(9)
    assert len(heard.sound()) == 5 * UNIT_SAMPLES * 2


async def test_the_sdk_takes_it_as_an_extra_field_over_what_the_body_says(
    synthetic: E2eMesh,
) -> None:
    async with synthetic.openai() as client:
        answer = await client.chat.completions.create(
            model="echo",
            messages=user(tokens=9),
            max_tokens=7,
            extra_body={"stage_params": {"thinker": {"sampling": {"tokens_max": 3}}}},
        )
    assert answer.choices[0].message.content == words(3)
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("value", [None, {}, {"thinker": None}, {"thinker": {}}])
async def test_nothing_said_of_a_stage_changes_nothing(http: httpx.AsyncClient, value: Any) -> None:
    """F3: an empty list of parameters is no error, and no exception."""
    body = {"model": "echo", "messages": user(tokens=3), "stage_params": value}
    answer = await http.post(CHAT, json=body)
    assert answer.json()["choices"][0]["message"]["content"] == words(3)


@pytest.mark.parametrize(
    ("value", "param", "code"),
    [
        ({"thinkr": {}}, "stage_params.thinkr", "unknown_parameter"),
        (
            {"thinker": {"sampling": {"heat": 1}}},
            "stage_params.thinker.sampling.heat",
            "unknown_parameter",
        ),
        (
            {"thinker": {"sampling": {"temperature": 3}}},
            "stage_params.thinker.sampling.temperature",
            "invalid_value",
        ),
        (
            {"thinker": {"image": {"width": 64}}},
            "stage_params.thinker.image.width",
            "unsupported_parameter",
        ),
        ([], "stage_params", "invalid_type"),
    ],
)
async def test_what_is_wrong_is_refused_by_name(
    synthetic: E2eMesh, value: Any, param: str, code: str
) -> None:
    async with synthetic.openai(max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model="echo", messages=user(tokens=3), extra_body={"stage_params": value}
            )
    assert (refused.value.param, refused.value.code) == (param, code)


async def test_images_and_speech_have_the_field_too(http: httpx.AsyncClient) -> None:
    body: dict[str, Any] = {"model": "paint", "prompt": script(tokens=1)}
    body["stage_params"] = {"painter": {"image": {"width": 32, "height": 32}}}
    assert (await http.post("/v1/images/generations", json=body)).status_code == 200
    body["stage_params"] = {"painter": {"audio": {"voice": "x"}}}
    refused = await http.post("/v1/images/generations", json=body)
    assert refused.json()["error"]["param"] == "stage_params.painter.audio.voice"
    body = {"model": "talk", "input": script(tokens=2), "stage_params": {"nobody": {}}}
    refused = await http.post("/v1/audio/speech", json=body)
    assert refused.json()["error"]["param"] == "stage_params.nobody"


async def test_a_grpc_client_tunes_stages_and_cannot_choose_its_tenant_or_priority(
    stub: orchestrator_service_pb2_grpc.OrchestratorServiceStub,
) -> None:
    request = request_pb2.Request(
        model="echo",
        messages=[
            request_pb2.Message(role="user", parts=[request_pb2.Part(text=script(tokens=9))])
        ],
        tenant="somebody else",
        priority=99,
    )
    request.stage_params["thinker"].sampling.tokens_max = 4
    call = stub.Generate(orchestrator_service_pb2.GenerateRequest(request=request))
    responses = [response async for response in call]
    assert "".join(o.text for r in responses for o in r.outputs) == words(4)
    assert responses[-1].terminal.outcome == outcome_pb2.OUTCOME_COMPLETED

    request.stage_params["nobody"].sampling.tokens_max = 4
    call = stub.Generate(orchestrator_service_pb2.GenerateRequest(request=request))
    with pytest.raises(aio.AioRpcError) as refused:
        responses = [response async for response in call]
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
