"""Measures the link against one call per request, and its codec; prints a line a figure.

    python -m tests.perf.bench_link [--quick] [--runs N]

Three processes in a chain (worker, relay, sink), ours and the peer in turn, CPU summed over all
three.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import psutil

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import Cursor, Outbox, Row, Step
from stagemesh.link.pump import decode, encode
from tests.perf import results
from tests.perf.chain_engine import LANE, WORDS, random_words

COMMAND = "python -m tests.perf.bench_link"
STOP_S = 5.0
LINE_S = 30.0


class Load(NamedTuple):
    """What the chain is to do."""

    streams: int
    step_ms: float


class Sample(NamedTuple):
    """What one run of the chain came to."""

    tokens_per_s: float
    cpu_us_per_token: float
    tokens_per_message: float


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One process of the chain, which is gone at the end."""
    command = [sys.executable, "-m", "tests.perf.link_chain", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                running.kill()


def line(running: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that a process told; its end is an error."""
    if running.stdout is None:
        raise AssertionError
    text = running.stdout.readline()
    if not text:
        raise RuntimeError(f"{running.args!r} ended with {running.wait(LINE_S)}")
    told: dict[str, Any] = json.loads(text)
    return told


def cpu_s(processes: list[subprocess.Popen[str]]) -> float:
    """The CPU seconds of all threads of the processes, so far."""
    times = [psutil.Process(one.pid).cpu_times() for one in processes]
    return sum(one.user + one.system for one in times)


def run_chain(variant: str, load: Load, *, window_s: float, seed: int) -> Sample:
    """Run the chain once."""
    with ExitStack() as stack:
        common = ("--seed", str(seed), "--step-ms", str(load.step_ms))
        worker = stack.enter_context(process("worker", variant, *common))
        relay = stack.enter_context(process("relay", variant, "--peer", line(worker)["address"]))
        sink = stack.enter_context(
            process(
                "sink", variant, "--peer", line(relay)["address"], "--streams", str(load.streams),
                "--window-s", str(window_s),
            )
        )  # fmt: skip
        processes = [worker, relay, sink]
        line(sink)
        before_s = cpu_s(processes)
        result = line(sink)
        spent_s = cpu_s(processes) - before_s
    if not result["tokens"]:
        raise RuntimeError(f"no token came through the chain of {variant}")
    return Sample(
        result["tokens"] / result["seconds"],
        spent_s / result["tokens"] * 1e6,
        result["tokens"] / max(1, result["messages"]),
    )


def batch_of(seed: int) -> list[Row]:
    """One step of 64 streams."""
    draw = random.Random(seed)
    words = random_words(seed)
    tokens = [draw.randrange(WORDS) for _ in range(64)]
    return [
        Row(slot, LANE, 0, 1, words[token], [token]) for slot, token in enumerate(tokens, start=1)
    ]


def relayed(rows: list[Row], keys: dict[int, tuple[int, Cursor]]) -> list[Row]:
    """What a relay does to rows: look up, check, and put the next link's slot in."""
    for row in rows:
        slot, cursor = keys[row.slot]
        if cursor.check(row) is not Step.ACCEPT:
            raise AssertionError(row)
        row.slot = slot
    return rows


def over_link(outbox: Outbox, rows: list[Row]) -> list[Row]:
    """Rows over one hop of a link, without the transport."""
    outbox.put_rows(rows)
    batch = outbox.take()
    if batch is None:
        raise AssertionError
    data = encode(batch).SerializeToString()
    return decode(link_pb2.LinkMessage.FromString(data))[0].rows


def over_messages(_: Outbox, rows: list[Row]) -> list[Row]:
    """Rows over one hop with a submessage for each, without token ids and without the transport."""
    message = orchestrator_service_pb2.GenerateResponse()
    for row in rows:
        message.outputs.add(
            choice=row.slot, modality=1, pos=row.pos, units=row.units, text=row.text
        )
    data = message.SerializeToString()
    outputs = orchestrator_service_pb2.GenerateResponse.FromString(data).outputs
    return [Row(one.choice, LANE, one.pos, one.units, one.text) for one in outputs]


Hop = Callable[[Outbox, list[Row]], list[Row]]


def two_hops(hop: Hop, rows: list[Row], rounds: int) -> None:
    """Worker to relay, relay to gateway, in batches of one step."""
    outbox = Outbox()
    keys = {row.slot: (row.slot + 7, Cursor()) for row in rows}
    for _ in range(rounds):
        for _, cursor in keys.values():
            cursor.next = 0
        arrived = hop(outbox, relayed(hop(outbox, rows), keys))
        if len(arrived) != len(rows):
            raise AssertionError


def time_hops(hop: Hop, rounds: int, seed: int) -> float:
    """The µs that one output costs."""
    rows = batch_of(seed)
    two_hops(hop, rows, rounds // 10)
    began_s = time.process_time()
    two_hops(hop, rows, rounds)
    return (time.process_time() - began_s) / rounds / len(rows) * 1e6


def row_of(
    name: str, unit: str, ours: list[float], peers: list[float], budget: str, *, met: bool | None
) -> results.Row:
    """One figure: medians, and every run."""
    return results.Row(
        name=name,
        value=round(results.median(ours), 3),
        unit=unit,
        budget=budget,
        met=met,
        peer=round(results.median(peers), 3) if peers else None,
        runs=[round(one, 3) for one in ours],
        command=COMMAND,
    )


def chain_results(runs: int, window_s: float) -> list[results.Row]:
    """The link against calls: tokens/s when saturated, CPU per token at a fixed rate."""
    rows = []
    for load in (Load(64, 0.0), Load(64, 5.0), Load(16, 5.0)):
        pairs = []
        for seed in range(runs):
            variants = ("link", "calls") if seed % 2 == 0 else ("calls", "link")
            got = {
                variant: run_chain(variant, load, window_s=window_s, seed=seed)
                for variant in variants
            }
            pairs.append((got["link"], got["calls"]))
        rows += load_results(load, pairs)
    return rows


def load_results(load: Load, pairs: list[tuple[Sample, Sample]]) -> list[results.Row]:
    """The results of one load."""
    what = f"link.{load.streams}_streams.{'free' if load.step_ms == 0 else '5ms'}"
    speed = [ours.tokens_per_s for ours, _ in pairs]
    speed_peer = [peer.tokens_per_s for _, peer in pairs]
    cpu = [ours.cpu_us_per_token for ours, _ in pairs]
    cpu_peer = [peer.cpu_us_per_token for _, peer in pairs]
    batch = [ours.tokens_per_message for ours, _ in pairs]
    rows = [
        row_of(f"{what}.tokens", "tokens/s", speed, speed_peer, "", met=None),
        row_of(f"{what}.cpu", "us/token", cpu, cpu_peer, "", met=None),
        row_of(f"{what}.batch", "tokens/message", batch, [], "", met=None),
    ]
    if load.step_ms == 0:
        ratios = [ours / peer for ours, peer in zip(speed, speed_peer, strict=True)]
        met = results.median(ratios) >= 5.0
        return [*rows, row_of(f"{what}.tokens_ratio", "x of calls", ratios, [], ">= 5", met=met)]
    ratios = [ours / peer for ours, peer in zip(cpu, cpu_peer, strict=True)]
    met = results.median(ratios) <= 0.3
    return [*rows, row_of(f"{what}.cpu_ratio", "x of calls", ratios, [], "<= 0.3", met=met)]


def codec_results(runs: int, rounds: int) -> list[results.Row]:
    """What one output costs to encode, relay and decode, in batches of 64."""
    ours, peers = [], []
    for seed in range(runs):
        ours.append(time_hops(over_link, rounds, seed))
        peers.append(time_hops(over_messages, rounds, seed))
    ratios = [one / peer for one, peer in zip(ours, peers, strict=True)]
    return [
        row_of("link.codec", "us/output", ours, peers, "", met=None),
        row_of("link.codec_ratio", "x of messages", ratios, [], "", met=None),
    ]


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run of each")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    runs = 1 if options.quick else options.runs
    results.print_rows(codec_results(max(3, runs), 300 if options.quick else 2000))
    results.print_rows(chain_results(runs, 1.0 if options.quick else 2.0))


if __name__ == "__main__":
    main()
