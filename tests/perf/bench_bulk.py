"""What a payload that it never sees costs the orchestrator: CPU of a request, 1 GiB against 1 KiB.

A stage makes a tensor, and another reads it in another process: the orchestrator handles a handle.
Both requests take as long, since the small one waits, so that what an orchestrator does anyway in
that time is in both; a row of its own says how much that is.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from tests.helpers.e2e_mesh import E2eMesh, running_mesh
from tests.helpers.e2e_sse import hear
from tests.perf.processes import cpu_s
from tests.perf.results import Row, median, print_rows

SMALL_BYTES: Final = 1 << 10
LARGE_BYTES: Final = 1 << 30
QUICK_BYTES: Final = 1 << 26
COPIES: Final = 3
"""So many payloads fit where this one is to be put: one may wait to be released, one be spare."""
BUDGET: Final = 1.05
SETTLE_S: Final = 0.1
"""What a request leaves to do after its answer, such as the release of its payload, counts too."""
MESH: Final = """
pools:
  encoder: {engine: synthetic, options: {gives: tensor}}
  reader: {engine: synthetic, options: {gives: text}}
pipelines:
  carry:
    deadline_s: 120
    stages:
      encoder: {pool: encoder, bridge: script}
      reader:
        pool: reader
        inputs: [input, {from: encoder, modality: tensor}]
        bridge: script
    outputs: {text: reader}
"""


async def ask(client: httpx.AsyncClient, size_bytes: int, wait_s: float) -> float:
    """Carry one payload; give the seconds that it took."""
    script = {
        "encoder": {"payload_bytes": size_bytes, "first_ms": wait_s * 1e3},
        "reader": {"tokens": 1},
    }
    text = f"#synthetic {json.dumps(script)}"
    body: dict[str, Any] = {"model": "carry", "messages": [{"role": "user", "content": text}]}
    begun_s = time.perf_counter()
    heard = await hear(client, body)
    assert not heard.errors, heard.errors
    heard.complete(" w0")
    return time.perf_counter() - begun_s


async def spent_us(
    orchestrator: psutil.Process, client: httpx.AsyncClient, size_bytes: int, wait_s: float
) -> tuple[float, float]:
    """Give the CPU of an orchestrator while it has one request, and the seconds that it took."""
    spent_s = cpu_s(orchestrator)
    took_s = await ask(client, size_bytes, wait_s)
    await asyncio.sleep(SETTLE_S)
    return (cpu_s(orchestrator) - spent_s) * 1e6, took_s


async def measure(mesh: E2eMesh, size_bytes: int, pairs: int) -> list[Row]:
    """Carry large and small payloads in turns; the medians are over all of each size."""
    orchestrator = psutil.Process(mesh.pids()["orchestrator-0"])
    large, small = [], []
    async with httpx.AsyncClient(base_url=mesh.url, timeout=120) as client:
        for warm_bytes in (SMALL_BYTES, size_bytes) * 2:
            await ask(client, warm_bytes, 0.0)
        for _ in range(pairs):
            used_us, took_s = await spent_us(orchestrator, client, size_bytes, 0.0)
            large.append(used_us)
            small.append((await spent_us(orchestrator, client, SMALL_BYTES, took_s))[0])
        rest_s = took_s + SETTLE_S
        spent_s = cpu_s(orchestrator)
        await asyncio.sleep(rest_s)
        idle_us = (cpu_s(orchestrator) - spent_s) * 1e6
    value = median(large) / median(small)
    size = f"{size_bytes >> 20} MiB of payload"
    return [
        Row(name=f"orchestrator CPU for a request, {size} against 1 KiB", value=value, unit="x",
            budget=f"<= {BUDGET} x", met=value <= BUDGET, runs=[large, small]),
        Row(name=f"orchestrator CPU while it has a request, {size}", value=median(large),
            unit="us", peer=median(small)),
        Row(name="orchestrator CPU in as long a time without one", value=idle_us, unit="us"),
    ]  # fmt: skip


def size_that_fits(wanted_bytes: int) -> int:
    """Give the size to carry: halved until it fits into shared memory here."""
    while COPIES * wanted_bytes > shutil.disk_usage("/dev/shm").free:
        wanted_bytes //= 2
    return wanted_bytes


def main() -> None:
    """Start a mesh, measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "bench.yaml"
        file.write_text(MESH)
        environment = {"XDG_CACHE_HOME": str(folder / "cache")}
        with running_mesh(file, folder, environment=environment) as mesh:
            size_bytes = size_that_fits(QUICK_BYTES if quick else LARGE_BYTES)
            rows = asyncio.run(measure(mesh, size_bytes, 5 if quick else 20))
    print_rows(rows)


if __name__ == "__main__":
    main()
