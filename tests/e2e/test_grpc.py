import asyncio
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2
from tests.helpers.e2e_mesh import E2eMesh, until
from tests.helpers.e2e_scripts import script, user, words

SERVICE = "stagemesh.api.orchestrator.v1.OrchestratorService"
GRPCURL = shutil.which("grpcurl", path=str(Path(sys.executable).parent)) or "grpcurl"


def grpcurl(
    mesh: E2eMesh, *words: str, data: Any = None, flags: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run the real tool against the client port; it learns everything by reflection."""
    asked = ("-d", json.dumps(data)) if data is not None else ()
    return subprocess.run(
        [GRPCURL, "-plaintext", *flags, *asked, mesh.grpc, *words],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def objects(text: str) -> list[dict[str, Any]]:
    """Read the JSON objects that follow each other in a text."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


def asking(text: str, model: str = "echo", **more: Any) -> dict[str, Any]:
    return {
        "request": {"model": model, "messages": [{"role": "user", "parts": [{"text": text}]}]}
    } | more


def test_grpcurl_lists_exactly_what_is_served_and_describes_it(synthetic: E2eMesh) -> None:
    services = grpcurl(synthetic, "list").stdout.split()
    assert SERVICE in services
    inner = ("Link", "Peer", "Admin", "Stage")
    assert not any(word in name for name in services for word in inner)
    for service in services:
        shown = grpcurl(synthetic, "describe", service)
        assert shown.returncode == 0, shown.stderr
    described = grpcurl(synthetic, "describe", SERVICE).stdout
    methods = {line.split()[1] for line in described.splitlines() if " rpc " in line}
    assert methods == {
        "Generate", "Converse", "Abort", "GetRequest", "ListModels", "ListRequests",
    }  # fmt: skip
    message = grpcurl(synthetic, "describe", "stagemesh.api.orchestrator.v1.GenerateRequest")
    assert "request" in message.stdout


def test_grpcurl_runs_generate_and_gets_the_pieces_and_one_terminal(synthetic: E2eMesh) -> None:
    ran = grpcurl(
        synthetic, f"{SERVICE}/Generate", data=asking(script(tokens=20, each_ms=5)), flags=("-v",)
    )
    assert ran.returncode == 0, ran.stderr
    assert "x-request-id: req_" in ran.stdout
    plain = grpcurl(synthetic, f"{SERVICE}/Generate", data=asking(script(tokens=20, each_ms=5)))
    responses = objects(plain.stdout)
    assert len(responses) > 3
    outputs = [output for response in responses for output in response.get("outputs", [])]
    assert "".join(output["text"] for output in outputs) == words(20)
    assert [int(output.get("pos", 0)) for output in outputs] == list(range(20))
    assert outputs[-1]["end"]["finish_reason"] == "FINISH_REASON_STOP"
    assert ["terminal" in response for response in responses] == [False] * (len(responses) - 1) + [
        True
    ]
    terminal = responses[-1]["terminal"]
    assert terminal["outcome"] == "OUTCOME_COMPLETED"
    assert terminal["usage"]["completion_tokens"] == "20"


def test_grpcurl_gives_text_and_audio_of_one_talk(synthetic: E2eMesh) -> None:
    responses = objects(
        grpcurl(synthetic, f"{SERVICE}/Generate", data=asking(script(tokens=4), "talk")).stdout
    )
    outputs = [output for response in responses for output in response.get("outputs", [])]
    assert {output["modality"] for output in outputs} == {"MODALITY_TEXT", "MODALITY_AUDIO"}
    assert sum("end" in output for output in outputs) == 2


@pytest.mark.parametrize(
    ("asked", "status", "error"),
    [
        (asking("x", "none"), "NotFound", ("NOT_FOUND", "model_not_found", "model")),
        ({}, "NotFound", ("NOT_FOUND", "model_not_found", "model")),
        (
            {"request": {"model": "echo"}},
            "InvalidArgument",
            ("INVALID_ARGUMENT", "invalid_value", "messages"),
        ),
        (
            asking("#synthetic {"),
            "InvalidArgument",
            ("INVALID_ARGUMENT", "invalid_value", "messages"),
        ),
        (
            asking(script(reject="RATE_LIMITED")),
            "ResourceExhausted",
            ("RATE_LIMITED", "rate_limit_exceeded", ""),
        ),
        (asking(script(tokens=3, fail_at=2)), "Internal", ("ENGINE_ERROR", "engine_error", "")),
    ],
    ids=["no-model", "nothing", "no-messages", "bad-script", "rejected", "failed"],
)
def test_grpcurl_shows_an_error_as_status_and_typed_detail(
    synthetic: E2eMesh, asked: Any, status: str, error: tuple[str, str, str]
) -> None:
    ran = grpcurl(synthetic, f"{SERVICE}/Generate", data=asked)
    assert ran.returncode != 0
    assert f"Code: {status}" in ran.stderr
    shown = objects(ran.stdout)[-1]["terminal"]["error"]
    code, reason, param = error
    assert (shown["code"], shown["reason"]) == (f"ERROR_CODE_{code}", reason)
    assert shown.get("param", "") == param
    assert shown["message"]


def test_grpcurl_lists_models_and_says_what_it_does_not_know(synthetic: E2eMesh) -> None:
    models = objects(grpcurl(synthetic, f"{SERVICE}/ListModels").stdout)[0]["models"]
    assert {model["model"] for model in models} == {
        "echo", "talk", "relay3", "paint", "pair", "film", "listen", "turns"}  # fmt: skip
    assert all(model["ready"] and model["revision"] for model in models)
    for method in ("Abort", "GetRequest"):
        ran = grpcurl(synthetic, f"{SERVICE}/{method}", data={"request_id": "req_none"})
        said_so = "NotFound" in ran.stderr or objects(ran.stdout) == [{}]
        assert said_so, ran
    unknown = grpcurl(synthetic, f"{SERVICE}/Generate", data={"request": {"nonsense": 1}})
    assert unknown.returncode != 0


async def test_a_running_request_is_shown_then_aborted_then_remembered(
    synthetic: E2eMesh,
) -> None:
    pb = orchestrator_service_pb2
    request = pb.GenerateRequest()
    request.request.model = "talk"
    request.request.messages.add(role="user").parts.add(text=script(tokens=10_000, each_ms=5))
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        call = stub.Generate(request, timeout=30)
        metadata = dict(await call.initial_metadata() or ())
        request_id = str(metadata["x-request-id"])
        responses = aiter(call)
        await anext(responses)
        shown = await stub.GetRequest(pb.GetRequestRequest(request_id=request_id), timeout=5)
        assert (shown.model, shown.state) == ("talk", "RUNNING")
        assert {attempt.stage for attempt in shown.attempts} == {"thinker", "talker"}
        aborted = await stub.Abort(pb.AbortRequest(request_id=request_id), timeout=5)
        assert aborted.aborted
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for response in responses:
                last = response
        assert ended.value.code() == grpc.StatusCode.CANCELLED
        assert last.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
        assert last.terminal.error.code == outcome_pb2.ERROR_CODE_ABORTED
        shown = await stub.GetRequest(pb.GetRequestRequest(request_id=request_id), timeout=5)
        assert shown.state == "DONE"
        assert shown.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
        again = await stub.Abort(pb.AbortRequest(request_id=request_id), timeout=5)
        assert not again.aborted
    await synthetic.settled(2)


async def test_a_request_of_the_sdk_can_be_aborted_over_grpc(
    synthetic: E2eMesh, http: httpx.AsyncClient
) -> None:
    body = {"model": "echo", "stream": True, "messages": user(tokens=10_000, each_ms=5)}
    async with (
        http.stream("POST", "/v1/chat/completions", json=body) as answer,
        grpc.aio.insecure_channel(synthetic.grpc) as channel,
    ):
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        request_id = answer.headers["x-request-id"]
        aborted = await stub.Abort(
            orchestrator_service_pb2.AbortRequest(request_id=request_id), timeout=5
        )
        assert aborted.aborted
        lines = [line async for line in answer.aiter_lines() if line]
    error = json.loads(lines[-1].removeprefix("data: "))["error"]
    assert (error["code"], error["request_id"]) == ("aborted", request_id)
    await synthetic.settled(2)


async def test_a_call_with_a_deadline_ends_at_it_with_a_typed_terminal(synthetic: E2eMesh) -> None:
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text=script(tokens=10_000, each_ms=5))
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for response in stub.Generate(request, timeout=2.0):
                last = response
    assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert last.terminal.outcome == outcome_pb2.OUTCOME_DEADLINE_EXCEEDED
    assert last.terminal.error.stage == "thinker"
    await synthetic.settled(2)


async def test_a_cancelled_call_stops_the_stage(synthetic: E2eMesh) -> None:
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text=script(tokens=10_000, each_ms=5))
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        call = stub.Generate(request)
        await call.read()
        call.cancel()
        await synthetic.settled(2)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096,
        bytes(65_536),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ],
    ids=["http1", "tls", "garbage-frames", "zeros", "silence"],
)
async def test_nonsense_on_the_grpc_port_harms_nobody(synthetic: E2eMesh, nonsense: bytes) -> None:
    sockets = [socket.create_connection(("127.0.0.1", synthetic.grpc_port)) for _ in range(20)]
    try:
        for one in sockets:
            one.sendall(nonsense)
        ran = await asyncio.to_thread(
            grpcurl, synthetic, f"{SERVICE}/Generate", data=asking(script(tokens=2))
        )
        assert ran.returncode == 0, ran.stderr
    finally:
        for one in sockets:
            one.close()


@pytest.mark.parametrize("junk", [b"\xff" * 1000, b"\x0a\xff\xff\xff\x7f", bytes(1)])
@pytest.mark.parametrize("method", ["Generate", "Abort", "GetRequest", "ListModels"])
async def test_messages_that_are_no_protobuf_are_the_clients_mistake(
    synthetic: E2eMesh, method: str, junk: bytes
) -> None:
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        raw: Any = channel  # Without serializers its stubs take nothing at all.
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            if method == "Generate":
                call = raw.unary_stream(f"/{SERVICE}/{method}")(junk, timeout=10)
                _ = [response async for response in call]
            else:
                await raw.unary_unary(f"/{SERVICE}/{method}")(junk, timeout=10)
    assert ended.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_over_the_limit_is_refused_and_the_channel_lives(
    synthetic: E2eMesh,
) -> None:
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text="x" * 40_000_000)
    async with grpc.aio.insecure_channel(
        synthetic.grpc, options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            _ = [response async for response in stub.Generate(request, timeout=30)]
        assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        models = await stub.ListModels(orchestrator_service_pb2.ListModelsRequest(), timeout=5)
        assert models.models


async def test_an_internal_service_is_not_offered_on_the_client_port(synthetic: E2eMesh) -> None:
    names = (
        "stagemesh.api.orchestrator.v1.GatewayLinkService/Attach",
        "stagemesh.api.admin.v1.AdminService/ListReplicas",
        "stagemesh.api.stage.v1.PayloadService/Fetch",
    )
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        raw: Any = channel
        for name in names:
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await raw.unary_unary(f"/{name}")(b"", timeout=5)
            assert ended.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_handle_of_a_client_is_refused(synthetic: E2eMesh) -> None:
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "listen"
    part = request.request.messages.add(role="user").parts.add()
    part.media.body.handle.handle_id = "h_" + "0" * 32
    part.media.body.handle.probe = "/etc/passwd#00"
    async with grpc.aio.insecure_channel(synthetic.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            _ = [response async for response in stub.Generate(request, timeout=10)]
    assert ended.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    await until(synthetic.leftovers, lambda left: not left, 5)
