"""A request outlives its gateway: killed for real, stopped, or robbed, the next one goes on.

The gateways are programs that have the part of a gateway which keeps such requests; orchestrators
and workers are those of a whole mesh.
"""

import asyncio
import base64
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.media import Modality, split_lane
from tests.helpers.e2e_mesh import ROOT, E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import UNIT_SAMPLES, pcm, script, words
from tests.helpers.e2e_small import ECHO_TALK_RELAY, one_mesh

TOKENS: Final = 120
SEED: Final = 7
LINE_BYTES_MAX: Final = 1 << 26
MODELS: Final = {"echo": ("text",), "talk": ("text", "audio"), "relay3": ("text", "audio")}
LISTEN: Final = """\
  listen:
    deadline_s: 60
    stages:
      listener: {{pool: thinker, inputs: [{{from: input, mode: stream}}], bridge: script}}
    outputs: {{text: listener}}
"""
"""One that reads input piece by piece."""


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Two orchestrators, and two replicas of every pool."""
    folder = tmp_path_factory.mktemp("detach")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO_TALK_RELAY + LISTEN, replicas=2)
    with running_mesh(file, folder, "--orchestrators", "2", environment=environment) as mesh:
        yield mesh


class Holder:
    """A gateway's part as a program, and what it said: each line once it is committed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def line(self) -> dict[str, Any]:
        """Wait for the next line."""
        assert self.process.stdout is not None
        said = await asyncio.wait_for(self.process.stdout.readline(), 60)
        assert said, "it ended without a word"
        self.lines.append(json.loads(said))
        return self.lines[-1]

    async def said(self, batches: int) -> None:
        """Wait until it has committed so many batches."""
        while sum("rows" in line for line in self.lines) < batches:
            await self.line()

    async def end(self) -> dict[str, Any]:
        """Wait for its last word."""
        while not {"terminal", "error"} & (await self.line()).keys():
            pass
        return self.lines[-1]

    async def kill(self) -> None:
        """Kill it, and hear what it had said before."""
        assert self.process.stdout is not None
        self.process.kill()
        rest = await self.process.stdout.read()
        self.lines += [json.loads(line) for line in rest.splitlines() if line.endswith(b"}")]
        await self.process.wait()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What it gave its consumer."""
        return [row for line in self.lines for row in line.get("rows", ())]

    @property
    def before(self) -> list[dict[str, Any]]:
        """What was committed before it came."""
        return [row for line in self.lines[0]["contents"] for row in line["rows"]]


class Store:
    """Where requests are kept, and the mesh that works on them."""

    def __init__(self, mesh: E2eMesh, file: Path) -> None:
        self.mesh = mesh
        self._flags = (
            "--discovery", f"file:{mesh.folder / 'discovery.json'}", "--store", str(file),
            "--data", "--links", "2",
        )  # fmt: skip

    @asynccontextmanager
    async def opened(
        self, model: str, request_id: str, *flags: str, **keys: Any
    ) -> AsyncIterator[Holder]:
        """Let a gateway open a request."""
        text = script(**{"tokens": TOKENS, "each_ms": 15, "seed": SEED} | keys)
        wants = [flag for name in MODELS.get(model, ("text",)) for flag in ("--modality", name)]
        async with self._program(
            "open", request_id, "--model", model, "--text", text, *wants, *flags
        ) as holder:
            yield holder

    @asynccontextmanager
    async def taken_over(self, request_id: str, *flags: str) -> AsyncIterator[Holder]:
        """Let another gateway take a request over."""
        async with self._program("take", request_id, *flags) as holder:
            yield holder

    @asynccontextmanager
    async def _program(self, what: str, request_id: str, *flags: str) -> AsyncIterator[Holder]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.helpers.detached_program", what,
            "--request-id", request_id, *self._flags, *flags,
            stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES_MAX, cwd=ROOT,
        )  # fmt: skip
        try:
            yield Holder(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def owner_of(self, request_id: str) -> str:
        """Name the orchestrator that has a request."""
        for name in ("orchestrator-0", "orchestrator-1"):
            counted = await self.mesh.metrics(name)
            if counted.get("stagemesh_orchestrator_requests_open", 0):
                return name
        raise AssertionError(f"nobody has {request_id}")


@pytest.fixture
def store(mesh: E2eMesh, tmp_path: Path) -> Store:
    """A store that nobody has used."""
    return Store(mesh, tmp_path / "requests.sqlite")


def whole(model: str, rows: list[dict[str, Any]]) -> None:
    """Check that rows are all of an answer: nothing skipped, doubled or wrong."""
    at: dict[int, int] = {}
    text, sound = "", b""
    for row in rows:
        assert row["pos"] == at.get(row["lane"], 0)
        at[row["lane"]] = row["pos"] + row["units"]
        if split_lane(row["lane"]).modality is Modality.TEXT:
            text += row["text"]
        else:
            sound += base64.b64decode(row.get("data", ""))
    assert text == words(TOKENS)
    if "audio" in MODELS.get(model, ()):
        assert sound == pcm(SEED, TOKENS * UNIT_SAMPLES)


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("meanwhile_s", [0.0, 4.0])
async def test_the_next_gateway_goes_on_where_the_killed_one_had_committed(
    store: Store, model: str, meanwhile_s: float
) -> None:
    async with store.opened(model, f"{model}-{meanwhile_s}") as first:
        await first.said(random.randint(1, 20))
        await first.kill()
    await asyncio.sleep(meanwhile_s)  # What runs runs on: after 4 s the short ones have ended.
    async with store.taken_over(f"{model}-{meanwhile_s}") as second:
        end = await second.end()
    assert end["terminal"] == "COMPLETED"
    assert second.before[: len(first.rows)] == first.rows, "what a client was given is stored"
    whole(model, second.before + second.rows)
    await store.mesh.settled()


async def test_a_conversation_goes_on_once_its_input_is_whole(store: Store) -> None:
    pieces = ("--pieces", str(TOKENS), "--pause-s", "0.3")
    async with store.opened("listen", "spoken", *pieces) as first:
        await first.said(1)
        await first.kill()
    async with store.taken_over("spoken") as second:
        assert (await second.end())["terminal"] == "COMPLETED"
    assert len(first.rows) < len(second.before + second.rows), "it was killed in the middle"
    whole("listen", second.before + second.rows)
    await store.mesh.settled()


async def test_gateways_die_one_after_another(store: Store) -> None:
    async with store.opened("talk", "many", each_ms=30) as holder:
        await holder.said(3)
        await holder.kill()
    for _ in range(3):
        async with store.taken_over("many") as holder:
            await holder.said(5)
            await holder.kill()
    async with store.taken_over("many") as last:
        assert (await last.end())["terminal"] == "COMPLETED"
    whole("talk", last.before + last.rows)
    await store.mesh.settled()


async def test_a_gateway_that_stood_still_learns_that_it_was_robbed(store: Store) -> None:
    async with store.opened("echo", "robbed", each_ms=30) as first:
        await first.said(5)
        first.process.send_signal(signal.SIGSTOP)
        async with store.taken_over("robbed") as second:
            await second.said(5)
            first.process.send_signal(signal.SIGCONT)
            assert (await first.end())["error"] == "taken_over"
            assert (await second.end())["terminal"] == "COMPLETED"
    rows = second.before + second.rows
    whole("echo", rows)
    assert first.rows == rows[: len(first.rows)]


async def test_of_two_that_take_over_at_once_one_has_all_of_it(store: Store) -> None:
    async with store.opened("echo", "raced", each_ms=30) as first:
        await first.said(5)
        await first.kill()
    async with store.taken_over("raced") as one, store.taken_over("raced") as other:
        ends = await asyncio.gather(one.end(), other.end())
    told = sorted(end.get("terminal") or end["error"] for end in ends)
    assert told in (["COMPLETED", "taken_over"], ["COMPLETED", "COMPLETED"])
    winner = one if len(one.rows) > len(other.rows) else other
    whole("echo", winner.before + winner.rows)


async def test_a_worker_that_dies_meanwhile_is_replaced(store: Store) -> None:
    async with store.opened("echo", "bereft", each_ms=40) as first:
        await first.said(5)
        busy = await store.mesh.inflight("thinker-0", "thinker-1")
        await first.kill()
    name = f"thinker-{busy.index(1)}"
    before = await store.mesh.one(name)
    store.mesh.kill(name)
    async with store.taken_over("bereft") as second:
        assert (await second.end())["terminal"] == "COMPLETED"
    whole("echo", second.before + second.rows)
    await store.mesh.back(name, before)


@pytest.mark.parametrize("begun", [True, False])
async def test_a_gateway_and_its_owner_die(store: Store, begun: bool) -> None:
    """What the client has cannot be gone on from without its causes; what gave nothing begins."""
    request_id, silent_ms = f"orphan-{begun}", 0 if begun else 6000
    async with store.opened("echo", request_id, each_ms=15, first_ms=silent_ms) as first:
        await (first.said(3) if begun else first.line())
        owner = await store.owner_of(request_id)
        await first.kill()
    before = await store.mesh.one(owner)
    store.mesh.kill(owner)
    async with store.taken_over(request_id, *("--links", "1")) as second:
        end = await second.end()
    if begun:
        assert (end["terminal"], end["reason"]) == ("FAILED", "link_lost")
        assert second.before[: len(first.rows)] == first.rows
    else:
        assert end["terminal"] == "COMPLETED"
        whole("echo", second.rows)
    await store.mesh.back(owner, before)


async def test_what_nobody_comes_for_is_given_up(store: Store) -> None:
    async with store.opened("talk", "left", "--detach-s", "1.5", tokens=5000) as first:
        await first.said(2)
        await first.kill()
    assert await store.owner_of("left")
    await until(store.mesh.leftovers, lambda left: not left, 10.0)


async def test_one_that_is_over_is_told_to_whoever_asks(store: Store) -> None:
    async with store.opened("echo", "over", each_ms=1) as first:
        assert (await first.end())["terminal"] == "COMPLETED"
    async with store.taken_over("over") as second:
        assert (await second.end())["terminal"] == "COMPLETED"
    assert second.rows == []
    whole("echo", second.before)
