"""The mesh against vLLM's own server: same package, model, flags, prompts and client, in turns.

Prints tokens/s, time to first token, and CPU per token: of the gateway, the orchestrator and the
worker's own process on one side, of vLLM's API server process on the other. The engine's child
processes do the same work on both sides and are reported apart.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil

from services.stage_worker.engines.support.weights import locate
from tests.perf.load import Load, Wave, run_wave
from tests.perf.processes import cpu_s, free_port, program, tree_cpu_s, wait_http
from tests.perf.results import Row, median, print_rows

START_S = 240.0
FLAGS = {"max_model_len": 2048, "dtype": "bfloat16", "enforce_eager": True, "max_num_seqs": 64}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
MESH = """
pools:
  thinker: {{engine: vllm, model: smollm2-135m-instruct, options: {options}, env: {env}}}
pipelines:
  smollm2:
    stages:
      thinker: {{pool: thinker, bridge: chat, choices: true}}
    outputs: {{text: thinker}}
"""


class Side(msgspec.Struct):
    """One system under load: its processes that are not engines, and its engines' root."""

    name: str
    address: str
    model: str
    parts: dict[str, psutil.Process]
    roots: list[psutil.Process]

    def spent(self) -> tuple[dict[str, float], float]:
        """CPU seconds so far: of each part alone, and of everything."""
        return (
            {name: cpu_s(process) for name, process in self.parts.items()},
            sum(tree_cpu_s(root) for root in self.roots),
        )


class Sample(msgspec.Struct):
    """One wave on one side."""

    wave: Wave
    parts_us: dict[str, float]
    all_us: float

    @property
    def serving_us(self) -> float:
        """CPU µs per token outside the engine's child processes."""
        return sum(self.parts_us.values())


@contextlib.contextmanager
def mesh(folder: Path, name: str, low: int, *, step_level: bool) -> Iterator[Side]:
    """Run the mesh with one vLLM worker, which reads whole engine steps or public generators."""
    file = folder / f"{name}.yaml"
    options = {**FLAGS, "step_level": step_level}
    file.write_text(MESH.format(options=json.dumps(options), env=json.dumps(ENVIRONMENT)))
    http, grpc = f"127.0.0.1:{free_port(low)}", f"127.0.0.1:{free_port(low + 500)}"
    stagemesh = str(Path(sys.executable).with_name("stagemesh"))
    command = [stagemesh, "up", str(file), "--http", http, "--grpc", grpc]
    with program(command, folder / f"{name}.log") as launcher:
        wait_http(f"http://{http}/ready", START_S)
        listed = subprocess.run(
            [stagemesh, "status", "--json", "--http", http], capture_output=True, check=True
        )
        rows = json.loads(listed.stdout)
        parts = {row["role"]: psutil.Process(row["pid"]) for row in rows}
        yield Side(name, http, "smollm2", parts, [launcher])


@contextlib.contextmanager
def peer(folder: Path) -> Iterator[Side]:
    """Run vLLM's own OpenAI server from the same installed package."""
    address = f"127.0.0.1:{free_port(28000)}"
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(locate("smollm2-135m-instruct", "hf").path),
        "--served-model-name", "smollm2",
        "--host", "127.0.0.1", "--port", address.rsplit(":", 1)[1],
        "--max-model-len", str(FLAGS["max_model_len"]), "--dtype", str(FLAGS["dtype"]),
        "--enforce-eager", "--max-num-seqs", str(FLAGS["max_num_seqs"]), "--disable-log-stats",
    ]  # fmt: skip
    with program(command, folder / "peer.log", ENVIRONMENT) as server:
        wait_http(f"http://{address}/health", START_S)
        yield Side("vllm", address, "smollm2", {"api_server": server}, [server])


async def measure(side: Side, clients: int, tokens: int, rng: random.Random) -> Sample:
    """Run one wave on one side, with the CPU that it cost."""
    load = Load(
        address=side.address,
        model=side.model,
        clients=clients,
        tokens=tokens,
        extra={"temperature": 0, "ignore_eos": True},
    )
    parts_before, all_before = side.spent()
    wave = await run_wave(load, rng)
    await asyncio.sleep(0.1)
    parts_after, all_after = side.spent()
    per_token = 1e6 / wave.tokens
    parts = {name: (parts_after[name] - parts_before[name]) * per_token for name in parts_before}
    return Sample(wave, parts, (all_after - all_before) * per_token)


def report(clients: int, samples: dict[str, list[Sample]]) -> list[Row]:
    """Turn the alternate samples into rows, as medians and ratios of medians."""
    ours, public, theirs = samples["mesh"], samples["mesh_public"], samples["vllm"]
    rows = [
        _row(f"tokens/s, {clients} clients", "tokens/s", ours, theirs, _speed),
        _row(f"time to first token p50, {clients} clients", "ms", ours, theirs, _first_ms),
        _row(f"serving CPU per token, {clients} clients", "us", ours, theirs, _serving_us),
        _row(f"whole CPU per token, {clients} clients", "us", ours, theirs, _all_us),
    ]
    rows[0].budget, rows[0].met = ">= 0.95 x peer", rows[0].value >= 0.95 * (rows[0].peer or 0)
    rows[1].budget, rows[1].met = "<= 1.1 x peer", rows[1].value <= 1.1 * (rows[1].peer or 0)
    limit = {16: 1.2, 64: 1.0}.get(clients)
    if limit is not None:
        rows[2].budget = f"<= {limit} x peer"
        rows[2].met = rows[2].value <= limit * (rows[2].peer or 0)
    for part in ours[0].parts_us:
        value = median([sample.parts_us[part] for sample in ours])
        rows.append(
            Row(name=f"CPU per token of the {part}, {clients} clients", value=value, unit="us")
        )
    worker = median([sample.parts_us["stage_worker"] for sample in public])
    name = f"CPU per token of the stage_worker on public generators, {clients} clients"
    return [*rows, Row(name=name, value=worker, unit="us")]


def _row(
    name: str,
    unit: str,
    ours: list[Sample],
    theirs: list[Sample],
    figure: Callable[[Sample], float],
) -> Row:
    runs = [[figure(sample) for sample in side] for side in (ours, theirs)]
    return Row(name=name, value=median(runs[0]), unit=unit, peer=median(runs[1]), runs=runs)


def _speed(sample: Sample) -> float:
    return sample.wave.tokens_per_s


def _first_ms(sample: Sample) -> float:
    return sample.wave.first_s(0.5) * 1e3


def _serving_us(sample: Sample) -> float:
    return sample.serving_us


def _all_us(sample: Sample) -> float:
    return sample.all_us


def main() -> None:
    """Alternate the two sides and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    options = parser.parse_args()
    rng = random.Random()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [
            stack.enter_context(mesh(folder, "mesh", 21000, step_level=True)),
            stack.enter_context(mesh(folder, "mesh_public", 24000, step_level=False)),
            stack.enter_context(peer(folder)),
        ]
        for clients in options.clients:
            samples: dict[str, list[Sample]] = {side.name: [] for side in sides}
            for side in sides:  # One wave each to warm up, not counted.
                asyncio.run(measure(side, clients, 8, rng))
            for turn in range(options.rounds):
                for side in sides[turn % 3 :] + sides[: turn % 3]:
                    sample = asyncio.run(measure(side, clients, options.tokens, rng))
                    samples[side.name].append(sample)
            print_rows(report(clients, samples))


if __name__ == "__main__":
    main()
