"""Runs the demo: `python -m tools.demo [--profile full|light] [--seed N]`."""

import argparse
import random
import sys
import time
from pathlib import Path

from openai import OpenAI, OpenAIError

from tools.demo.checks import CheckFailed
from tools.demo.jobs import JOBS, Bench, Job
from tools.demo.mesh import replicas, running_mesh

ROOT = Path(__file__).parents[2]
MESHES = {"full": ROOT / "pipelines/demo.yaml", "light": ROOT / "pipelines/demo-light.yaml"}
REQUEST_S = 300.0


def main() -> int:
    """Start the mesh, run and check every job, stop the mesh; 0 only if all held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=sorted(MESHES), default="full")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--out", type=Path, default=ROOT / "out/demo")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    say(f"demo: profile {options.profile}, seed {options.seed}, files in {options.out}")
    started_s = time.monotonic()
    failed = 0
    with running_mesh(MESHES[options.profile]) as http:
        say(f"mesh ready after {time.monotonic() - started_s:.1f} s at http://{http}")
        client = OpenAI(
            base_url=f"http://{http}/v1", api_key="none", timeout=REQUEST_S, max_retries=0
        )
        bench = Bench(client, options.out, random.Random(options.seed))
        for job in JOBS:
            failed += not run(job, bench, http)
    say(
        f"demo: {len(JOBS) - failed} of {len(JOBS)} jobs held, {time.monotonic() - started_s:.1f} s"
    )
    return 1 if failed else 0


def run(job: Job, bench: Bench, http: str) -> bool:
    """Run one job, print its line, and tell whether it held."""
    workers = [replica for pool, replica in replicas(http).items() if pool in job.pools]
    names = "; ".join(str(worker) for worker in workers)
    started_s = time.monotonic()
    try:
        if any(worker.engine == "synthetic" for worker in workers) or len(workers) < len(job.pools):
            raise CheckFailed(f"not on real engines: {names}")
        result = job.run(bench)
    except (CheckFailed, OpenAIError) as error:
        say(f"FAILED {job.name}: {error} [{names}]")
        return False
    say(f"ok     {job.name}: {result}, {time.monotonic() - started_s:.2f} s [{names}]")
    return True


def say(line: str) -> None:
    """Print a line for the operator at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
