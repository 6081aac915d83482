"""What an open idle stream costs the gateway in memory, and what stays after many of them."""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from tests.perf.processes import free_port, program, wait_http
from tests.perf.results import Row, print_rows

START_S = 60.0
SETTLE_S = 1.5
MESH = """
pools:
  thinker: {engine: synthetic, options: {gives: text, slots: 4096}}
pipelines:
  echo:
    limits: {running_max: 4096, waiting_max: 4096}
    stages:
      thinker: {pool: thinker, bridge: script, choices: true}
    outputs: {text: thinker}
"""
SCRIPT = '#synthetic {"tokens": 2, "first_ms": 0, "each_ms": 60000}'


async def open_streams(address: str, count: int) -> list[asyncio.StreamWriter]:
    """Open streams that get one token and then nothing for a minute."""
    host, port = address.rsplit(":", 1)
    body = json.dumps(
        {"model": "echo", "stream": True, "messages": [{"role": "user", "content": SCRIPT}]}
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + body)
        async with asyncio.timeout(10):
            await reader.readuntil(b" w0")
        writers.append(writer)
    return writers


async def cycle(address: str, count: int, gateway: psutil.Process) -> tuple[int, int]:
    """Open, look, close, look; give the gateway's resident bytes while open and after."""
    writers = await open_streams(address, count)
    await asyncio.sleep(SETTLE_S)
    during = gateway.memory_info().rss
    for writer in writers:
        writer.close()
    await asyncio.sleep(SETTLE_S)
    return during, gateway.memory_info().rss


async def measure(address: str, gateway: psutil.Process, count: int, cycles: int) -> list[Row]:
    """Measure the first cycle against the state before it, and the last against the second."""
    await cycle(address, 50, gateway)
    before = gateway.memory_info().rss
    seen = [await cycle(address, count, gateway) for _ in range(cycles)]
    each = (seen[0][0] - before) / count / 1024
    growth = (seen[-1][1] - seen[0][1]) / 1024
    return [
        Row(name=f"memory per open idle stream at the gateway, {count} streams", value=each,
            unit="KiB", budget="<= 25 KiB", met=each <= 25,
            runs=[[during, after] for during, after in seen]),
        Row(name=f"growth of the gateway over {cycles - 1} more cycles", value=growth, unit="KiB"),
    ]  # fmt: skip


def main() -> None:
    """Start a mesh, measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
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
            (pid,) = (row["pid"] for row in json.loads(listed.stdout) if row["role"] == "gateway")
            rows = asyncio.run(
                measure(http, psutil.Process(pid), 200 if quick else 800, 3 if quick else 6)
            )
    print_rows(rows)


if __name__ == "__main__":
    main()
