"""The stage worker as a program: how it starts, drains, breaks and dies."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.stage_worker.engines.synthetic_engine import CRASH_EXIT_CODE
from stagemesh.media import Modality
from stagemesh.rpc import open_channel
from tests.helpers.loopback import free_address
from tests.helpers.worker_peer import WorkerPeer, attach, scripted

MESH = """
pools:
  any: {engine: synthetic, replicas: 1, options: {gives: text}}
  tensors: {engine: synthetic, replicas: 1, options: {gives: tensor}}
pipelines:
  echo:
    stages:
      thinker: {pool: any, bridge: script}
      encoder: {pool: tensors, bridge: script}
      painter: {pool: any, inputs: [thinker, {from: encoder, modality: tensor}], bridge: script}
    outputs: {text: painter}
"""
STAGE_SERVICE = "stagemesh.api.stage.v1.StageService"
START_S = 30.0


def ours(folder: Path) -> set[str]:
    """What payload stores have left in a folder."""
    return {name for name in os.listdir(folder) if name.startswith("stagemesh-")}


@asynccontextmanager
async def worker(
    folder: Path, address: str, *, pool: str = "any", drain_s: float = 5.0
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the program; it is killed at the end if it is still there."""
    mesh = folder / "mesh.yaml"
    await asyncio.to_thread(mesh.write_text, MESH)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.stage_worker", "--mesh", str(mesh), "--pool", pool),
        *("--replica-id", "replica-0", "--listen", address, "--drain-s", str(drain_s)),
        *("--payload-directory", str(folder), "--metrics", free_address()),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def exit_of(process: asyncio.subprocess.Process) -> tuple[int, list[dict[str, Any]]]:
    """Wait for the program; give its exit code and its log."""
    async with asyncio.timeout(START_S):
        _, log = await process.communicate()
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in log.splitlines()]


@asynccontextmanager
async def peer_of(address: str) -> AsyncIterator[WorkerPeer]:
    """Attach to a program that has just been started, once it serves."""
    channel = open_channel(address)
    health = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=STAGE_SERVICE)
    # The stub's methods are made at run time; its types do not name them.
    call = health.Watch(  # type: ignore[attr-defined]
        request, wait_for_ready=True, timeout=START_S
    )
    try:
        async for answer in call:
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                break
    finally:
        call.cancel()
        await channel.close()
    async with attach(address) as peer:
        yield peer


@pytest.mark.contract
async def test_sigterm_lets_attempts_finish_and_exits_0(tmp_path: Path) -> None:
    address = free_address()
    async with worker(tmp_path, address) as process:
        async with peer_of(address) as peer:
            slot = peer.submit(scripted(tokens=20, each_ms=20))
            await peer.until(lambda: peer.slots[slot].rows)
            process.send_signal(signal.SIGTERM)
            await peer.until_ended(slot)
            assert peer.slots[slot].text.endswith(" w19")
        code, log = await exit_of(process)
    assert code == 0
    assert "loading" in [line.get("event") for line in log]
    assert not ours(tmp_path)


@pytest.mark.contract
async def test_sigterm_while_nothing_runs_exits_0_at_once(tmp_path: Path) -> None:
    address = free_address()
    async with worker(tmp_path, address, drain_s=60.0) as process, peer_of(address):
        process.send_signal(signal.SIGTERM)
        code, _ = await exit_of(process)
    assert code == 0


@pytest.mark.contract
async def test_a_killed_worker_leaves_nothing_once_it_is_back(tmp_path: Path) -> None:
    address = free_address()
    async with worker(tmp_path, address, pool="tensors") as process, peer_of(address) as peer:
        slot = peer.submit(scripted(tokens=1, payload_bytes=500_000), modalities=[Modality.TENSOR])
        await peer.until_ended(slot)
        process.kill()
        await peer.until(lambda: peer.losses)
        await process.wait()
    left = ours(tmp_path)
    assert any("-h_" in name for name in left)
    async with worker(tmp_path, address, pool="tensors"), peer_of(address):
        assert not left & ours(tmp_path)


@pytest.mark.contract
async def test_a_crash_of_the_engine_is_a_crash_of_the_process(tmp_path: Path) -> None:
    address = free_address()
    async with worker(tmp_path, address) as process, peer_of(address) as peer:
        slot = peer.submit(scripted(tokens=9, crash_at=2))
        await peer.until(lambda: peer.losses)
        code, _ = await exit_of(process)
        assert peer.slots[slot].terminal is None
    assert code == CRASH_EXIT_CODE


@pytest.mark.contract
async def test_what_is_set_wrong_is_said_on_one_line_with_exit_code_2(tmp_path: Path) -> None:
    async with worker(tmp_path, free_address(), pool="none such") as process:
        async with asyncio.timeout(START_S):
            _, log = await process.communicate()
    assert process.returncode == 2
    assert log.decode().count("\n") == 1
    assert "none such" in log.decode()
