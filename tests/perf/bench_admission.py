"""What a burst does to an orchestrator, and what the death of one does to the others.

A gateway opens 1,000 requests at once, and a client aborts one that runs: the abort must be
acknowledged as if nothing else went on. Then one of three orchestrators is killed under load: the
other two take what it had, and stay up.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stagemesh.api.orchestrator.v1 import (
    gateway_link_service_pb2_grpc,
    orchestrator_service_pb2_grpc,
)
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.types.v1 import link_pb2, request_pb2
from stagemesh.rpc import open_channel
from tests.helpers.fake_gateway import FakeGateway
from tests.perf.load import Load, run_wave
from tests.perf.processes import free_port, program, wait_http
from tests.perf.results import Row, median, print_rows

BURST: Final = 1_000
ACK_BUDGET_MS: Final = 100.0
START_S: Final = 60.0
GUARD_S: Final = 60.0
STREAMS: Final = 200
MESH: Final = """
pools:
  thinker: {engine: synthetic, replicas: 2, options: {gives: text, slots: 4096}}
pipelines:
  echo:
    limits: {running_max: 8192, waiting_max: 8192}
    stages:
      thinker: {pool: thinker, bridge: script, choices: true}
    outputs: {text: thinker}
"""
ENDLESS: Final = '#synthetic {"tokens": 2000, "first_ms": 0, "each_ms": 100}'
SHORT: Final = '#synthetic {"tokens": 2, "first_ms": 0, "each_ms": 1}'
LONG: Final = '#synthetic {"tokens": 100, "first_ms": 0, "each_ms": 50}'


class Mesh:
    """A mesh that runs, and where its parts are."""

    def __init__(self, folder: Path, http: str, grpc: str) -> None:
        self.folder = folder
        self.http = http
        self.grpc = grpc

    @property
    def link(self) -> str:
        """The link port of the first orchestrator."""
        path = self.folder / "stagemesh" / "run" / self.http / "discovery.json"
        groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
        return str(groups["orchestrators"][0]["address"])

    def orchestrators(self) -> dict[str, dict[str, Any]]:
        """What `status` says of them, by name."""
        listed = subprocess.run(
            [_stagemesh(), "status", "--json", "--http", self.http],
            capture_output=True,
            check=True,
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder)},
        )
        rows = json.loads(listed.stdout)
        return {row["replica_id"]: row for row in rows if row["role"] == "orchestrator"}


@contextmanager
def running(folder: Path, orchestrators: int) -> Iterator[Mesh]:
    """Run a mesh with so many orchestrators."""
    (folder / "bench.yaml").write_text(MESH)
    mesh = Mesh(folder, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port(25000)}")
    command = [_stagemesh(), "up", str(folder / "bench.yaml"), "--http", mesh.http]
    command += ["--grpc", mesh.grpc, "--orchestrators", str(orchestrators)]
    with program(command, folder / "mesh.log", {"XDG_CACHE_HOME": str(folder)}):
        wait_http(f"http://{mesh.http}/ready", START_S)
        yield mesh


async def acknowledgements(mesh: Mesh, rounds: int) -> tuple[list[float], list[float]]:
    """Abort a request that runs, in silence and in a burst; give the milliseconds of each."""
    quiet: list[float] = []
    busy: list[float] = []
    async with open_channel(mesh.grpc) as channel, open_channel(mesh.link) as links:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        attach = gateway_link_service_pb2_grpc.GatewayLinkServiceStub(links).Attach
        async with FakeGateway(attach, window_units=1 << 20) as gateway:
            for number in range(rounds):
                quiet.append(await _abort(stub, gateway, number, burst=0))
                busy.append(await _abort(stub, gateway, number, burst=BURST))
    return quiet, busy


async def _abort(
    stub: orchestrator_service_pb2_grpc.OrchestratorServiceStub,
    gateway: FakeGateway,
    number: int,
    *,
    burst: int,
) -> float:
    """Abort one request in the middle of a burst; wait until all of the burst has ended."""
    call = stub.Generate(pb.GenerateRequest(request=_request(ENDLESS)))
    request_id = str(dict(await call.initial_metadata() or ())["x-request-id"])
    await call.read()
    gateway.frames.clear()
    gateway.rows.clear()
    request = _request(SHORT)
    for at in range(burst):
        gateway.open(request, request_id=f"req_{number}_{at}")
    if burst:
        await gateway.until(lambda: bool(gateway.frames))  # The orchestrator is in the middle.
    begun_s = time.perf_counter()
    answer = await stub.Abort(pb.AbortRequest(request_id=request_id), timeout=GUARD_S)
    took_ms = (time.perf_counter() - begun_s) * 1e3
    if not answer.aborted or answer.state != "DONE":
        raise AssertionError(f"not acknowledged: {answer}")
    await gateway.until(lambda: sum(row.end is not None for row in gateway.rows) == burst)
    await gateway.until(lambda: sum(map(_is_end, gateway.frames)) == burst)
    call.cancel()
    return took_ms


async def one_dies(mesh: Mesh, rng: random.Random) -> tuple[int, int]:
    """Kill an orchestrator under load; give the streams that completed, and who stayed up."""
    before = await _asked(mesh)
    body = {"messages": [{"role": "user", "content": LONG}]}
    load = Load(address=mesh.http, model="echo", clients=STREAMS, tokens=100, extra=body)
    wave = asyncio.create_task(run_wave(load, rng))
    victim = "orchestrator-0"
    async with asyncio.timeout(GUARD_S):
        while await _open_at(mesh, victim) < STREAMS // 4:
            pass  # Each question takes longer than a pause would.
    os.kill(before[victim]["pid"], signal.SIGKILL)
    complete = sum(result.tokens == 100 for result in (await wave).results)
    after = await _asked(mesh)
    stayed = sum(after[name]["pid"] == before[name]["pid"] for name in before if name != victim)
    return complete, stayed


async def _asked(mesh: Mesh) -> dict[str, dict[str, Any]]:
    return await asyncio.to_thread(mesh.orchestrators)


async def _open_at(mesh: Mesh, name: str) -> int:
    return int((await _asked(mesh))[name]["inflight"] or 0)


def _is_end(frame: link_pb2.Frame) -> bool:
    return frame.HasField("terminal")


def _request(text: str) -> request_pb2.Request:
    message = request_pb2.Message(role="user", parts=[request_pb2.Part(text=text)])
    return request_pb2.Request(model="echo", messages=[message])


def _stagemesh() -> str:
    return str(Path(sys.executable).with_name("stagemesh"))


def main() -> None:
    """Measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name, running(Path(name), 1) as mesh:
        quiet, busy = asyncio.run(acknowledgements(mesh, 3 if quick else 10))
    worst = max(busy)
    rows = [
        Row(name="abort by id, acknowledged, nothing else going on", value=median(quiet),
            unit="ms", runs=quiet),
        Row(name=f"abort by id, acknowledged, amid {BURST} requests of one burst (worst)",
            value=worst, unit="ms", budget=f"<= {ACK_BUDGET_MS:g}", met=worst <= ACK_BUDGET_MS,
            runs=busy),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as name, running(Path(name), 3) as mesh:
        complete, stayed = asyncio.run(one_dies(mesh, random.Random(1)))
    rows.append(
        Row(name="two orchestrators under the load of one dying: streams that complete",
            value=complete, unit=f"of {STREAMS}", budget=f"{STREAMS}, both stay up",
            met=complete == STREAMS and stayed == 2, runs=[complete, stayed])
    )  # fmt: skip
    print_rows(rows)


if __name__ == "__main__":
    main()
