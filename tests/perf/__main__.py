"""Runs the benchmarks: `python -m tests.perf [--quick]`; a table, and `out/bench.json`.

It exits with status 1 if one of them did not run, or a budget is missed; those are named last.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
BENCHES = ("link", "core", "orchestrator", "admission", "added_latency", "idle", "payload")
NOT_QUICK = ("bulk", "recovery", "serving")
"""These take minutes; `serving` needs models."""
BENCH_S = 1800.0


def main() -> int:
    """Run every benchmark as a program of its own and gather its rows; give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute, without model peers")
    parser.add_argument("--only", nargs="+", default=None, help="names of benchmarks")
    options = parser.parse_args()
    names = options.only or (BENCHES if options.quick else BENCHES + NOT_QUICK)
    rows: list[dict[str, Any]] = []
    broken = []
    for name in names:
        command = [sys.executable, "-m", f"tests.perf.bench_{name}"]
        command += ["--quick"] if options.quick else []
        print(f"running {name}", flush=True)  # noqa: T201 - progress for the operator
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=BENCH_S, check=False
        )
        rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        broken += [name] if done.returncode else []
    target = ROOT / "out" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"machine": _machine(), "results": rows}, indent=1) + "\n")
    _show(rows)
    return verdict(rows, broken)


def verdict(rows: Sequence[Mapping[str, Any]], broken: Sequence[str]) -> int:
    """Name the benchmarks that did not run and the budgets that are missed; 0 if there are none."""
    missed = [row for row in rows if row["met"] is False]
    for name in broken:
        print(f"FAILED to run: {name}", flush=True)  # noqa: T201 - the verdict
    for row in missed:
        found = f"{row['value']:.4g} {row['unit']}, and the budget is {row['budget']}"
        print(f"MISSED: {row['name']}: {found}", flush=True)  # noqa: T201 - the verdict
    return 1 if broken or missed else 0


def _machine() -> dict[str, Any]:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_1min": os.getloadavg()[0],
    }


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table("what", "value", "unit", "budget", "met", "peer")
    for row in rows:
        met = {True: "yes", False: "NO", None: ""}[row["met"]]
        peer = "" if row["peer"] is None else f"{row['peer']:.4g}"
        table.add_row(row["name"], f"{row['value']:.4g}", row["unit"], row["budget"], met, peer)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
