"""Whatever dies, stands still or is cut off: every request ends once, and nothing is left."""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest

from tests.helpers.chaos_faults import KILLS_MAX, Kind, Troublemaker, draw_faults
from tests.helpers.chaos_load import COMPLETE, GONE, LEFT, load_on
from tests.helpers.chaos_verdict import unexplained
from tests.helpers.cut_lines import cut_lines
from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import user, words
from tests.helpers.e2e_small import ALL_KINDS, one_mesh
from tests.helpers.e2e_sse import hear

pytestmark = pytest.mark.timeout(240)

SEEDS: Final = tuple(map(int, os.environ.get("STAGEMESH_CHAOS_SEEDS", "1").split(",")))
"""More of them, with commas between, for a longer run."""
SPAN_S: Final = float(os.environ.get("STAGEMESH_CHAOS_S", "30"))
CLIENTS: Final = 16
BACK_S: Final = 60.0
MEMORY_MIB: Final = 200
KEPT: Final = ("requests", "running", "waiting", "input_bytes", "client_slots", "attempts")
LEASE_S: Final = 18.0
"""So long a worker keeps what an orchestrator could not tell it to drop."""


class Trouble:
    """A mesh whose payloads lie in a folder of their own."""

    def __init__(self, mesh: E2eMesh, payloads: Path) -> None:
        self.mesh = mesh
        self.payloads = payloads
        self.peak_mib: dict[str, float] = {}

    async def watch_memory(self) -> None:
        """Note the largest size of each process, until cancelled."""
        while True:
            for one in self.mesh.processes():
                with suppress(psutil.NoSuchProcess):
                    size = psutil.Process(one["pid"]).memory_info().rss if one["pid"] else 0
                    name = one["replica_id"]
                    self.peak_mib[name] = max(self.peak_mib.get(name, 0.0), size / 2**20)
            await asyncio.sleep(0.5)

    async def not_ready(self) -> list[tuple[str, str]]:
        """Name the processes that are not ready."""
        records = await self.mesh.status()
        return [(one["replica_id"], one["state"]) for one in records if one["state"] != "ready"]

    async def kept(self) -> dict[str, float]:
        """Name what cores still keep of requests that are over."""
        left: dict[str, float] = {}
        for one in self.mesh.processes():
            if one["role"] == "orchestrator":
                counted = await self.mesh.metrics(one["replica_id"])
                for kind in KEPT:
                    count = counted[f"stagemesh_orchestrator_kept{{{kind}}}"]
                    left |= {f"{one['replica_id']} {kind}": count} if count else {}
        return left

    def complaints(self) -> list[dict[str, Any]]:
        """Give what processes logged as errors, over all their lives."""
        found: list[dict[str, Any]] = []
        for name in self.mesh.pids():
            found += [
                {"of": name, **line}
                for line in self.mesh.log(name)
                if line["level"] in {"ERROR", "CRITICAL"}
            ]
        return found


@pytest.fixture
def trouble(tmp_path: Path) -> Iterator[Trouble]:
    """Two of everything."""
    payloads = Path(tempfile.mkdtemp(prefix="stagemesh-chaos-", dir="/dev/shm"))
    environment = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "STAGEMESH_PAYLOAD_DIRECTORY": str(payloads),
        "STAGEMESH_LEASE_S": str(LEASE_S),
    }
    size = ("--gateways", "2", "--orchestrators", "2")
    try:
        with running_mesh(
            one_mesh(tmp_path, ALL_KINDS, replicas=2), tmp_path, *size, environment=environment
        ) as mesh:
            yield Trouble(mesh, payloads)
    finally:
        shutil.rmtree(payloads, ignore_errors=True)


def test_a_seed_draws_the_same_faults_again_and_another_one_others() -> None:
    names, cuttable = ["gateway-0", "orchestrator-0", "thinker-0"], ["orchestrator-0", "thinker-0"]
    drawn = draw_faults(7, 60.0, names, cuttable)
    assert drawn == draw_faults(7, 60.0, names, cuttable)
    assert drawn != draw_faults(8, 60.0, names, cuttable)
    assert {fault.name for fault in drawn} == set(names)
    kills = Counter(fault.name for fault in drawn if fault.kind is Kind.KILL)
    assert max(kills.values()) <= KILLS_MAX
    assert {fault.kind for fault in drawn if fault.name == "gateway-0"} <= {Kind.KILL, Kind.STOP}


@pytest.mark.invariant("ENTRY-INV-102", "ORCH-INV-106", "ORCH-INV-201", "ORCH-INV-204")
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_request_ends_once_and_nothing_is_left_whatever_happens(
    trouble: Trouble, seed: int, record_property: Callable[[str, object], None]
) -> None:
    mesh = trouble.mesh
    names = [one["replica_id"] for one in mesh.processes()]
    async with cut_lines(mesh) as lines, load_on(mesh, seed) as load:
        faults = draw_faults(seed, SPAN_S, names, sorted(lines))
        print(f"seed {seed}:", *faults, sep="\n  ")  # noqa: T201 - shown when it fails
        maker = Troublemaker(mesh, lines)
        watching = asyncio.create_task(trouble.watch_memory())
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(load.client(number))
            await maker.run(faults)
            load.over = True
        watching.cancel()
        with suppress(asyncio.CancelledError):  # Whatever else ended it comes out here.
            await watching
        await until(trouble.not_ready, lambda left: not left, BACK_S)
        await mesh.settled(LEASE_S + 8)
        await _serves(mesh)
        await until(trouble.kept, lambda left: not left, 5)

    counts = Counter(one.how for one in load.ended)
    record_property("ends", dict(counts))
    record_property("faults", dict(Counter(f"{one.kind.value} {one.name}" for one in maker.done)))
    record_property("peak_mib", {name: round(size) for name, size in trouble.peak_mib.items()})
    assert load.wrong == []
    assert len(load.ended) == load.begun
    assert unexplained(load.ended, maker.done) == []
    assert counts[COMPLETE] > 0.5 * load.begun, counts
    # Nearly every loss has a remedy: an error is the exception, whatever fault explains it.
    typed = load.begun - sum(counts[how] for how in (COMPLETE, LEFT, GONE))
    assert typed <= 0.03 * load.begun, counts
    assert max(trouble.peak_mib.values()) < MEMORY_MIB, trouble.peak_mib
    assert trouble.complaints() == []
    _gone(trouble)


async def _serves(mesh: E2eMesh) -> None:
    """Check that every gateway serves as if nothing had happened."""
    for one in mesh.processes():
        if one["role"] == "gateway":
            address = f"http://{one['address']}"
            async with httpx.AsyncClient(base_url=address, timeout=30) as http:
                for _ in range(4):
                    answer = await hear(http, {"model": "echo", "messages": user(tokens=3)})
                    answer.complete(words(3))


def _gone(trouble: Trouble) -> None:
    """Stop the mesh; check that it ends well, and without a trace."""
    mesh = trouble.mesh
    children = psutil.Process(mesh.process.pid).children(recursive=True)
    code, took_s = mesh.stop()
    assert code == 0, mesh.said
    assert took_s < 15
    assert "exited with" not in mesh.said
    assert [child for child in children if child.is_running()] == []
    assert list(trouble.payloads.iterdir()) == []
