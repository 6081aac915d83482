"""How long a stream stands still when its worker or its orchestrator is killed with `kill -9`.

Real processes, the synthetic `echo`, one client: the kill comes in the middle of the stream, and
what counts is the pause between the last piece before it and the first one after.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx

from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import user, words
from tests.helpers.e2e_small import ECHO, one_mesh
from tests.helpers.e2e_sse import Heard, hear
from tests.perf.results import Row, print_rows

TOKENS: Final = 200
EACH_MS: Final = 10.0
AT: Final = TOKENS // 3
"""After so many tokens the process is killed."""
BUDGET_S: Final = 2.0
VICTIMS: Final = {
    "a worker": ("thinker-0", "thinker-1"),
    "an orchestrator": ("orchestrator-0", "orchestrator-1"),
}


class Timed(Heard):
    """A stream, with the moments at which its pieces came."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s: list[float] = []

    def take(self, data: str) -> None:
        """Take the data of one event, and note when it came with text."""
        before = len(self.texts.get(0, ()))
        super().take(data)
        if len(self.texts.get(0, ())) > before:
            self.at_s.append(time.monotonic())


async def gap_s(mesh: E2eMesh, names: tuple[str, ...]) -> float:
    """Kill the process that has a stream; give the longest pause between its pieces from then on.

    Raises:
        AssertionError: If the client does not get one whole answer.
    """
    heard = Timed()
    body: dict[str, Any] = {"model": "echo", "messages": user(tokens=TOKENS, each_ms=EACH_MS)}
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        stream = asyncio.create_task(hear(client, body, heard=heard))

        async def count() -> int:
            return len(heard.at_s)

        await until(count, lambda came: came >= AT or stream.done(), 30.0)
        found = dict(zip(names, await mesh.inflight(*names), strict=True))
        (victim,) = [name for name, attempts in found.items() if attempts]
        before = await mesh.one(victim)
        mesh.kill(victim)
        killed_s = time.monotonic()
        await stream
    heard.complete(words(TOKENS))
    await mesh.back(victim, before)
    gaps = zip(heard.at_s, heard.at_s[1:], strict=False)
    return max(later_s - max(sooner_s, killed_s) for sooner_s, later_s in gaps)


async def measure(mesh: E2eMesh, runs: int) -> list[Row]:
    """Kill one of each kind, in turns."""
    gaps: dict[str, list[float]] = {kind: [] for kind in VICTIMS}
    for _ in range(runs):
        for kind, names in VICTIMS.items():
            gaps[kind].append(await gap_s(mesh, names))
    return [
        Row(name=f"kill -9 of {kind} to the continued stream, worst of {runs}", value=max(found),
            unit="s", budget=f"<= {BUDGET_S:g} s", met=max(found) <= BUDGET_S, runs=found)
        for kind, found in gaps.items()
    ]  # fmt: skip


def main() -> None:
    """Start a mesh with two of everything that is killed, measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    runs = 1 if parser.parse_args().quick else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = one_mesh(folder, ECHO, replicas=2)
        environment = {"XDG_CACHE_HOME": str(folder / "cache")}
        with running_mesh(file, folder, "--orchestrators", "2", environment=environment) as mesh:
            rows = asyncio.run(measure(mesh, runs))
    print_rows(rows)


if __name__ == "__main__":
    main()
