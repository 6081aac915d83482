"""The demo's own mesh: started as a program, asked what runs in it, stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import msgspec

from stagemesh.api.stage.v1 import stage_service_pb2

__all__ = ["Replica", "replicas", "running_mesh"]

STAGEMESH = str(Path(sys.executable).with_name("stagemesh"))
START_S = 600.0
STOP_S = 30.0
DESCRIBE_S = 5.0


class Replica(msgspec.Struct, frozen=True):
    """One stage worker, as it describes itself."""

    pool: str
    engine: str
    model: str
    digest: str
    pid: int
    incarnation: int

    def __str__(self) -> str:
        return (
            f"{self.pool}={self.engine}:{self.model}@{self.digest[:12]} "
            f"pid {self.pid} incarnation {self.incarnation:016x}"
        )


@contextmanager
def running_mesh(mesh_file: Path) -> Iterator[str]:
    """Run a mesh for as long as the block lasts; give the address of its gateway.

    Raises:
        RuntimeError: If it does not get ready, or does not stop with exit code 0.
    """
    http, grpc_address = free_address(), free_address()
    command = [STAGEMESH, "up", str(mesh_file), "--http", http, "--grpc", grpc_address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        _await_ready(process)
        yield http
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    if code != 0:
        raise RuntimeError(f"the mesh stopped with exit code {code}")


def replicas(http: str) -> dict[str, Replica]:
    """Ask every stage worker of the mesh what it is; give one replica for each pool."""
    status = subprocess.run(
        [STAGEMESH, "status", "--json", "--http", http], capture_output=True, text=True, check=True
    )
    rows = [row for row in json.loads(status.stdout) if row["role"] == "stage_worker"]
    return {row["pool"]: _describe(row["address"]) for row in rows}


def free_address() -> str:
    """Find a free loopback port below the range that the kernel gives to clients."""
    for port in range(20000 + os.getpid() % 5000, 32000):
        if port in _given:
            continue
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        _given.add(port)
        return f"127.0.0.1:{port}"
    raise RuntimeError("no free port below 32000")


_given: set[int] = set()


def _await_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    watchdog = signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, START_S)
    try:
        for line in process.stdout:
            print(f"  up: {line.rstrip()}", flush=True)
            if line.strip() == "ready":
                return
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, watchdog)
    raise RuntimeError(f"the mesh ended before it was ready, exit code {process.wait()}")


def _too_late(_number: int, _frame: object) -> None:
    raise RuntimeError(f"the mesh was not ready within {START_S:.0f} s")


def _describe(address: str) -> Replica:
    with grpc.insecure_channel(address) as channel:
        describe = channel.unary_unary(
            "/stagemesh.api.stage.v1.StageService/Describe",
            request_serializer=stage_service_pb2.DescribeRequest.SerializeToString,
            response_deserializer=stage_service_pb2.DescribeResponse.FromString,
        )
        hello = describe(stage_service_pb2.DescribeRequest(), timeout=DESCRIBE_S).hello
    card = hello.worker
    return Replica(
        card.pool, card.engine, card.model, card.model_digest, hello.pid, hello.incarnation
    )
