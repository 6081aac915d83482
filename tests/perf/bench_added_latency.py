"""What the mesh adds to the time to first token, against a worker called directly.

One client, one request after the other, in turns; the engine is synthetic and computes nothing.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from stagemesh.api.stage.v1 import stage_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2, request_pb2
from stagemesh.ids import new_incarnation, new_request_id
from stagemesh.link.core import SlotMint
from stagemesh.link.pump import Dialer, Link, LinkPolicy, Received
from stagemesh.media import Modality, lane_of
from stagemesh.rpc import open_channel
from tests.perf.load import draw_prompt
from tests.perf.processes import free_port, program, wait_http
from tests.perf.results import Row, median, print_rows

START_S = 60.0
ANSWER_S = 10.0
MESH = """
pools:
  thinker: {engine: synthetic, options: {gives: text}}
pipelines:
  echo:
    stages:
      thinker: {pool: thinker, bridge: script, choices: true}
    outputs: {text: thinker}
"""
SCRIPT = {"tokens": 4, "first_ms": 0, "each_ms": 0}


class Direct:
    """A link straight to the worker, as an orchestrator would open it."""

    def __init__(self) -> None:
        self.up = asyncio.Event()
        self._slots = SlotMint()
        self._first: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._link: Link | None = None

    def attached(self, link: Link) -> None:
        """Take the link."""
        self._link = link
        self.up.set()

    def received(self, link: Link, received: Received) -> None:
        """Note when the first row of the request comes."""
        if received.rows and not self._first.done():
            self._first.set_result(time.perf_counter())

    def lost(self, link: Link, reason: str) -> None:
        """Let what waits for an answer run into its deadline."""

    async def first_s(self, text: str) -> float:
        """Submit one attempt and give the seconds to its first row."""
        assert self._link is not None
        lane = lane_of(0, 0, Modality.TEXT)
        message = request_pb2.Message(role="user", parts=[request_pb2.Part(text=text)])
        submit = link_pb2.Submit(
            request_id=new_request_id(),
            epoch=1,
            attempt=1,
            stage_name="thinker",
            roles=[link_pb2.RoleSpec(slot=self._slots.next(), lanes=[lane])],
            deadline_left_s=ANSWER_S,
            request=request_pb2.Request(model="echo", messages=[message], choices=1),
            bridge="script",
        )
        self._first = asyncio.get_running_loop().create_future()
        started_s = time.perf_counter()
        self._link.send_frame(link_pb2.Frame(submit=submit))
        async with asyncio.timeout(ANSWER_S):
            return await self._first - started_s


@contextlib.asynccontextmanager
async def direct_link(address: str) -> AsyncIterator[Direct]:
    """Keep a link to a worker for as long as the block lasts."""
    events, incarnation = Direct(), new_incarnation()
    limits = link_pb2.LinkLimits(window_units=1 << 20, window_bytes=1 << 30)

    def hello() -> link_pb2.Hello:
        return link_pb2.Hello(
            service=link_pb2.SERVICE_KIND_ORCHESTRATOR,
            id="bench",
            incarnation=incarnation,
            limits=limits,
            state=link_pb2.PROCESS_STATE_READY,
        )

    async with open_channel(address) as channel:
        stub = stage_service_pb2_grpc.StageServiceStub(channel)
        dialer = Dialer(
            stub.Attach, hello=hello, ping=link_pb2.Ping, events=events, policy=LinkPolicy()
        )
        running = asyncio.create_task(dialer.run())
        try:
            async with asyncio.timeout(START_S):
                await events.up.wait()
            yield events
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def through_s(address: str, text: str) -> float:
    """Ask over HTTP and give the seconds to the first piece of content, over a new connection."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(
        {"model": "echo", "stream": True, "messages": [{"role": "user", "content": text}]}
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    started_s = time.perf_counter()
    writer.write(head.encode() + body)
    received, first_s = b"", 0.0
    async with asyncio.timeout(ANSWER_S):
        while piece := await reader.read(1 << 16):
            received += piece
            if not first_s and b" w0" in received:
                first_s = time.perf_counter() - started_s
    writer.close()
    if b"data: [DONE]" not in received or not first_s:
        raise RuntimeError(f"a stream was cut short: {received[-300:]!r}")
    return first_s


async def measure(http: str, worker: str, count: int) -> tuple[list[float], list[float]]:
    """Ask both ways in turns; give the milliseconds of each way."""
    rng = random.Random()
    directly, through = [], []
    async with direct_link(worker) as direct:
        for turn in range(count + 20):
            text = f"{draw_prompt(rng)} #synthetic {json.dumps(SCRIPT)}"
            pair = await direct.first_s(text) * 1e3, await through_s(http, text) * 1e3
            if turn >= 20:  # The first ones warm both ways up.
                directly.append(pair[0])
                through.append(pair[1])
            await asyncio.sleep(0.002)
    return directly, through


def main() -> None:
    """Start a mesh, measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench.yaml").write_text(MESH)
        http, grpc = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port(25000)}"
        stagemesh = str(Path(sys.executable).with_name("stagemesh"))
        command = [stagemesh, "up", str(folder / "bench.yaml"), "--http", http, "--grpc", grpc]
        with program(command, folder / "mesh.log"):
            wait_http(f"http://{http}/ready", START_S)
            listed = subprocess.run(
                [stagemesh, "status", "--json", "--http", http], capture_output=True, check=True
            )
            (worker,) = (
                row["address"] for row in json.loads(listed.stdout) if row["role"] == "stage_worker"
            )
            directly, through = asyncio.run(measure(http, worker, 100 if options.quick else 500))
    rows = []
    for label, quantile, budget in (("p50", 0.5, 2.0), ("p99", 0.99, 10.0)):
        own, peer = (sorted(values)[int(quantile * len(values))] for values in (through, directly))
        rows.append(
            Row(name=f"added time to first token, {label}", value=own - peer, unit="ms", peer=peer,
                budget=f"<= {budget} ms", met=own - peer <= budget, runs=[len(through)])
        )  # fmt: skip
    rows.append(Row(name="time to first token through the mesh, p50", unit="ms",
                    value=median(through), peer=median(directly)))  # fmt: skip
    print_rows(rows)


if __name__ == "__main__":
    main()
