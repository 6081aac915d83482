"""The orchestrator as a process of its own: how it starts, and the three ways in which it ends."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asyncinotify import Inotify, Mask
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.orchestrator import app
from services.orchestrator.core.effects import Effect
from services.orchestrator.core.events import Event, Opened
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.driver import read_dump
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2_grpc
from stagemesh.pipeline import parse_mesh
from stagemesh.rpc import open_channel
from tests.helpers.fake_worker import STOP, FakeWorker, counting, silent
from tests.helpers.loopback import free_address
from tests.helpers.running_orchestrator import ask, running_orchestrator
from tools.replay import replay

MESH = """\
pools:
  thinker: {engine: synthetic, replicas: 1}
pipelines:
  echo:
    stages:
      thinker: {pool: thinker}
    outputs: {text: thinker}
"""


class Spawned:
    """One process, and what a test needs of it."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process = process
        self.address = address

    async def end(self) -> tuple[int, list[dict[str, Any]]]:
        """Wait for its end; give the exit code and the log."""
        async with asyncio.timeout(20):
            _, err = await self.process.communicate()
        lines = [json.loads(line) for line in err.decode().splitlines() if line.startswith("{")]
        return self.process.returncode or 0, lines


@asynccontextmanager
async def spawned(folder: Path, workers: list[FakeWorker], *flags: str) -> AsyncIterator[Spawned]:
    mesh, discovery = folder / "mesh.yaml", folder / "discovery.json"
    mesh.write_text(MESH)
    pool = [{"id": worker.replica_id, "address": worker.address} for worker in workers]
    discovery.write_text(json.dumps({"groups": {"pool/thinker": pool}}))
    address = free_address()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.orchestrator", "--mesh", str(mesh), "--id", "o-7"),
        *("--discovery", f"file:{discovery}", "--grpc", address),
        *("--link", free_address(), "--admin", free_address(), "--drain-s", "5"),
        *("--payload-directory", str(folder)),
        *flags,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Spawned(process, address)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def serving(channel: Any, name: str) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=name)
    watch = health.Watch(request, wait_for_ready=True)
    async with asyncio.timeout(20):
        async for response in watch:
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                break
    watch.cancel()


async def test_on_sigterm_it_finishes_what_is_open_and_exits_with_zero(tmp_path: Path) -> None:
    async with (
        FakeWorker() as worker,
        spawned(tmp_path, [worker]) as orchestrator,
        open_channel(orchestrator.address) as channel,
    ):
        await serving(channel, "echo")
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        call = stub.Generate(ask("a secret"))
        job = await worker.job()
        orchestrator.process.send_signal(signal.SIGTERM)
        job.say(" done", end=STOP)
        responses = [response async for response in call]
        code, log = await orchestrator.end()

    assert code == 0
    assert "".join(output.text for answer in responses for output in answer.outputs) == " done"
    [ended] = [line for line in log if line["message"] == "request_ended"]
    assert (ended["model"], ended["outcome"]) == ("echo", "COMPLETED")
    assert ended["request_id"] == job.submit.request_id
    assert (ended["service"], ended["id"]) == ("orchestrator", "o-7")
    assert "secret" not in json.dumps(log)
    assert payload_files(tmp_path) == []


def payload_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith("stagemesh-")]


async def test_a_replica_that_is_listed_later_is_found(tmp_path: Path) -> None:
    async with (
        FakeWorker() as worker,
        spawned(tmp_path, []) as orchestrator,
        open_channel(orchestrator.address) as channel,
    ):
        await serving(channel, "")
        pool = [{"id": worker.replica_id, "address": worker.address}]
        fresh = tmp_path / "discovery.json.new"
        fresh.write_text(json.dumps({"groups": {"pool/thinker": pool}}))
        fresh.replace(tmp_path / "discovery.json")
        await serving(channel, "echo")
        orchestrator.process.send_signal(signal.SIGTERM)
        code, _ = await orchestrator.end()

    assert code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [("pools: [", "mesh.yaml: line 1"), (MESH + "nonsense: 1\n", "mesh.yaml: line 8")],
)
async def test_a_bad_mesh_file_is_told_by_line_with_exit_code_two(
    tmp_path: Path, text: str, told: str
) -> None:
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text(text)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.orchestrator", "--mesh", str(mesh), "--id", "o-0"),
        *("--discovery", f"file:{tmp_path}/discovery.json"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()

    assert process.returncode == 2
    assert told in err.decode()
    assert "Traceback" not in err.decode()


async def test_a_taken_port_is_told_with_exit_code_two(tmp_path: Path) -> None:
    taken = free_address()
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text(MESH)
    host, _, port = taken.partition(":")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), host, int(port))
    async with server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "services.orchestrator", "--mesh", str(mesh), "--id", "o-0"),
            *("--discovery", f"file:{tmp_path}/discovery.json", "--grpc", taken),
            *("--link", free_address(), "--admin", free_address()),
            *("--payload-directory", str(tmp_path)),
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await process.communicate()

    assert process.returncode == 2
    assert taken in err.decode()


class BrokenCore(Orchestrator):
    """A core with a bug that the first request meets."""

    def step(self, event: Event, now_s: float) -> list[Effect]:
        """Break on a request."""
        if isinstance(event, Opened):
            raise KeyError("a bug")
        return super().step(event, now_s)


async def test_a_bug_in_the_core_takes_the_process_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "Orchestrator", BrokenCore)
    async with FakeWorker(script=silent) as worker:
        with pytest.raises(ExceptionGroup) as caught:
            async with running_orchestrator(
                [worker], tmp_path, dump_directory=str(tmp_path)
            ) as orchestrator:
                await orchestrator.serving("echo")
                call = orchestrator.stub.Generate(ask("a secret"))
                assert await call.code() is not None

    assert caught.group_contains(KeyError, match="a bug")
    critical = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert [record.__dict__["event_kind"] for record in critical] == ["Opened"]
    path = tmp_path / "o-0-failed.dump"
    dump = read_dump(path)
    assert (dump.reason, dump.skipped) == ("KeyError", 0)
    assert isinstance(dump.steps[-1].event, Opened)
    assert dump.steps[-1].effects is None
    assert b"a secret" not in path.read_bytes()


async def test_on_sigusr1_it_writes_its_last_inputs_down_and_goes_on(tmp_path: Path) -> None:
    async with (
        FakeWorker(script=counting(3)) as worker,
        spawned(tmp_path, [worker], "--dump-directory", str(tmp_path)) as one,
        open_channel(one.address) as channel,
    ):
        await serving(channel, "echo")
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        assert len([response async for response in stub.Generate(ask("a secret"))]) > 0
        path = tmp_path / "o-7-asked.dump"
        with Inotify() as inotify:
            inotify.add_watch(tmp_path, Mask.MOVED_TO)
            one.process.send_signal(signal.SIGUSR1)
            async with asyncio.timeout(10):
                await inotify.get()
        dump = read_dump(path)
        assert len([response async for response in stub.Generate(ask())]) > 0
        one.process.send_signal(signal.SIGTERM)
        code, _ = await one.end()

    assert code == 0
    assert dump.orchestrator_id == "o-7"
    assert b"a secret" not in path.read_bytes()
    verdict = replay(dump, parse_mesh(MESH, "mesh.yaml"))
    assert (verdict.exact, verdict.differences, verdict.raised) == (True, (), None)
    assert [one.outcome for step in dump.steps for one in step.ended] == [1]


async def test_the_garbage_collector_is_told_before_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    class Idle:
        """A program that has nothing to do."""

        stop = dump = print

        def __init__(self, *given: Any) -> None:
            steps.append("made")

        async def run(self) -> None:
            steps.append("run")

    def freeze_heap(*, full_after: int) -> None:
        steps.append("frozen" if full_after > 10 else "often")

    monkeypatch.setattr(app, "Program", Idle)
    monkeypatch.setattr(app, "freeze_heap", freeze_heap)
    nothing: Any = None
    await app.serve(nothing, nothing)
    assert steps == ["made", "frozen", "run"]
