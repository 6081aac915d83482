"""A mesh under steady load for minutes: `python -m tests.perf.soak --minutes 10`.

A short ramp finds the knee: the rate of requests above which first tokens come late. Half of it is
then kept up. Afterwards the memory of every process must not have grown, every counter must say
what was done, and nothing may be left.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil

from tests.helpers.e2e_mesh import E2eMesh, running_mesh
from tests.helpers.e2e_small import ECHO_TALK_RELAY, one_mesh
from tests.perf.load import Load, Result, run_one
from tests.perf.results import Row, median, print_rows

MODELS: Final = ("echo", "echo", "echo", "talk", "relay3")
STAGES: Final[Mapping[str, int]] = {"echo": 1, "talk": 2, "relay3": 3}
TOKENS: Final = 50
EACH_MS: Final = 5.0
SPOKEN: Final = {"modalities": ["text", "audio"], "audio": {"voice": "any", "format": "pcm16"}}

STEP_S: Final = 4.0
FIRST_RATE: Final = 8.0
FACTOR: Final = 1.3
RATE_MAX: Final = 1_000.0
LATE_FACTOR: Final = 4.0
LATE_S: Final = 0.02
"""First tokens are late at so many times what they take alone, and so much more."""

WARM_SHARE: Final = 0.2
"""Of the time, after which sizes count: caches and arenas fill at first."""
SAMPLE_S: Final = 2.0
SLOPE_MIB: Final = 0.5
"""What a process may grow in a minute, beyond what its own noise explains."""
KEPT: Final = ("requests", "running", "waiting", "input_bytes", "client_slots", "attempts")


class Tally(msgspec.Struct):
    """What was asked for, and what came."""

    asked: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    results: list[Result] = []
    failures: list[str] = []


class Steady:
    """Requests at a rate, at all gateways in turn, whether or not earlier ones have ended."""

    def __init__(self, addresses: Sequence[str], rng: random.Random) -> None:
        self._addresses = itertools.cycle(addresses)
        self._rng = rng
        self.tally = Tally()

    async def run(self, rate: float, span_s: float) -> Tally:
        """Keep a rate up for a while, and wait for the last answers; give what it brought."""
        before = len(self.tally.results)
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in itertools.count():
                due_s = begun_s + number / rate
                if due_s >= begun_s + span_s:
                    break
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                tasks.create_task(self._one(self._rng.choice(MODELS)))
        return Tally(results=self.tally.results[before:])

    async def _one(self, model: str) -> None:
        self.tally.asked[model] += 1
        load = Load(
            address=next(self._addresses), model=model, clients=1, tokens=TOKENS,
            extra=SPOKEN if model != "echo" else {},
        )  # fmt: skip
        script = json.dumps({"tokens": TOKENS, "each_ms": EACH_MS})
        try:
            result = await run_one(load, f"#synthetic {script}")
        except (OSError, RuntimeError, TimeoutError) as error:
            self.tally.failures.append(repr(error)[:300])
            return
        self.tally.results.append(result)


class Sizes:
    """The resident memory of every process over time."""

    def __init__(self, mesh: E2eMesh) -> None:
        self._mesh = mesh
        self.samples: dict[str, list[tuple[float, float]]] = {}

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        begun_s = time.monotonic()
        while True:
            for name, pid in self._mesh.pids().items():
                size = psutil.Process(pid).memory_info().rss / 2**20
                self.samples.setdefault(name, []).append((time.monotonic() - begun_s, size))
            await asyncio.sleep(SAMPLE_S)

    def growth(self) -> dict[str, tuple[float, float]]:
        """Give the slope of each in MiB a minute, by least squares, and the error of that slope."""
        return {name: slope_of(samples) for name, samples in self.samples.items()}


def slope_of(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit a line to sizes over seconds, without the first ones; per minute, with its error."""
    kept = samples[int(WARM_SHARE * len(samples)) :]
    count = len(kept)
    mean_s, mean = (sum(column) / count for column in zip(*kept, strict=True))
    spread = sum((at_s - mean_s) ** 2 for at_s, _ in kept)
    slope = sum((at_s - mean_s) * (size - mean) for at_s, size in kept) / spread
    left = sum((size - mean - slope * (at_s - mean_s)) ** 2 for at_s, size in kept)
    error = (left / max(1, count - 2) / spread) ** 0.5
    return 60 * slope, 60 * error


async def find_knee(steady: Steady) -> float:
    """Raise the rate until first tokens come late; give the last rate that was well served."""
    alone = await steady.run(FIRST_RATE, STEP_S)
    late_s = LATE_FACTOR * _first_s(alone) + LATE_S
    knee, rate = FIRST_RATE, FIRST_RATE
    while rate < RATE_MAX:
        rate *= FACTOR
        if _first_s(await steady.run(rate, STEP_S)) > late_s:
            break
        knee = rate
    return knee


def _first_s(tally: Tally) -> float:
    ordered = sorted(result.first_s for result in tally.results)
    return ordered[int(0.95 * (len(ordered) - 1))]


async def inconsistencies(mesh: E2eMesh, tally: Tally) -> list[str]:
    """Compare what every process counted with what was done; name each difference."""
    done = sum(tally.asked.values()) - len(tally.failures)
    found = dict.fromkeys(("finished", "completed", "status_200", "attempts", "kept"), 0.0)
    for one in mesh.processes():
        counted = await mesh.metrics(one["replica_id"])
        if one["role"] == "orchestrator":
            found["finished"] += counted.get("stagemesh_orchestrator_requests_finished_total", 0)
            for model in STAGES:
                ended = f"stagemesh_orchestrator_requests_finished_total{{,{model},COMPLETED}}"
                found["completed"] += counted.get(ended, 0)
            found["kept"] += sum(counted[f"stagemesh_orchestrator_kept{{{k}}}"] for k in KEPT)
        elif one["role"] == "gateway":
            name = "stagemesh_gateway_http_requests_total{/v1/chat/completions,200}"
            found["status_200"] += counted.get(name, 0)
        else:
            found["attempts"] += counted.get("stagemesh_worker_attempts_total", 0)
    attempts = sum(STAGES[model] * count for model, count in tally.asked.items())
    expected = {
        "finished": done, "completed": done, "status_200": done, "attempts": attempts, "kept": 0,
    }  # fmt: skip
    return [
        f"{what}: {found[what]:.0f}, not {count}"
        for what, count in expected.items()
        if found[what] != count
    ]


async def soak(mesh: E2eMesh, minutes: float, rng: random.Random) -> tuple[list[Row], list[str]]:
    """Find the knee, keep half of it up, and give the figures and all that was wrong."""
    addresses = [one["address"] for one in mesh.processes() if one["role"] == "gateway"]
    steady = Steady(addresses, rng)
    knee = await find_knee(steady)
    sizes = Sizes(mesh)
    watching = asyncio.create_task(sizes.watch())
    tally = await steady.run(knee / 2, 60 * minutes)
    watching.cancel()
    with suppress(asyncio.CancelledError):  # Whatever else ended it comes out here.
        await watching
    await mesh.settled(15)
    wrong = [*steady.tally.failures, *await inconsistencies(mesh, steady.tally)]
    rows = [
        Row(name="soak: knee", value=knee, unit="requests/s"),
        Row(name="soak: requests at half of it", value=len(tally.results), unit="requests"),
        Row(name="soak: tokens", value=sum(r.tokens for r in tally.results), unit="tokens"),
        Row(name="soak: first token p50", value=1e3 * median([r.first_s for r in tally.results]),
            unit="ms"),
        Row(name="soak: first token p95", value=1e3 * _first_s(tally), unit="ms"),
    ]  # fmt: skip
    for name, (slope, error) in sizes.growth().items():
        flat = slope - 3 * error <= SLOPE_MIB
        peak = max(size for _, size in sizes.samples[name])
        rows.append(
            Row(name=f"soak: growth of {name} (at most {peak:.0f} MiB; error {error:.2f})",
                value=slope, unit="MiB/min", budget=f"<= {SLOPE_MIB}", met=flat)
        )  # fmt: skip
        wrong += [] if flat else [f"{name} grows by {slope:.2f} MiB a minute"]
    return rows, wrong


def main() -> int:
    """Run it, print the rows, and give 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = one_mesh(folder, ECHO_TALK_RELAY, replicas=1)
        size = ("--gateways", "2", "--orchestrators", "2")
        environment = {"XDG_CACHE_HOME": str(folder / "cache")}
        with running_mesh(file, folder, *size, environment=environment) as mesh:
            rows, wrong = asyncio.run(soak(mesh, options.minutes, random.Random()))
    print_rows(rows)
    for what in wrong[:20]:
        print(f"WRONG: {what}", flush=True)  # noqa: T201 - the verdict
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
