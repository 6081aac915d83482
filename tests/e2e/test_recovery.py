"""Whatever is killed or stands still, a client has one whole answer: nothing doubled or skipped."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack

import httpx
import pytest

from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import UNIT_SAMPLES, pcm, user, words
from tests.helpers.e2e_small import ECHO_TALK_RELAY, one_mesh
from tests.helpers.e2e_sse import Heard, hear

TOKENS = 300
ORCHESTRATORS = ("orchestrator-0", "orchestrator-1")


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Two of everything."""
    folder = tmp_path_factory.mktemp("recovery")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO_TALK_RELAY, replicas=2)
    size = ("--gateways", "2", "--orchestrators", "2")
    with running_mesh(file, folder, *size, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def doors(mesh: E2eMesh) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client for each gateway."""
    limits = httpx.Limits(max_connections=None)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://{one['address']}", timeout=90, limits=limits)
            )
            for one in mesh.processes()
            if one["role"] == "gateway"
        ]


class Streams:
    """Streams of one model, at all gateways in turn, each with a seed of its own."""

    def __init__(
        self,
        doors: Sequence[httpx.AsyncClient],
        tasks: asyncio.TaskGroup,
        model: str,
        count: int,
        *,
        tokens: int = TOKENS,
        each_ms: float = 15,
    ) -> None:
        self.tokens = tokens
        self.spoken = model != "echo"
        self.heard = [Heard() for _ in range(count)]
        for seed, one in enumerate(self.heard):
            body = {
                "model": model,
                "messages": user(tokens=tokens, each_ms=each_ms),
                "seed": seed,
                "stream_options": {"include_usage": True},
            }
            if self.spoken:
                body["modalities"] = ["text", "audio"]
                body["audio"] = {"voice": "any", "format": "pcm16"}
            tasks.create_task(hear(doors[seed % len(doors)], body, heard=one))

    async def said(self, tokens: int) -> None:
        """Wait until every stream has said so much, or has ended."""

        async def least() -> int:
            return min(
                self.tokens if one.errors or one.broken else one.text().count(" w")
                for one in self.heard
            )

        await until(least, lambda count: count >= tokens, 30)

    @property
    def unfinished(self) -> int:
        """How many streams have not ended."""
        return sum(not (one.dones or one.errors or one.broken) for one in self.heard)

    def check(self) -> None:
        """Check that every client has one whole answer, to the token and to the sample."""
        for seed, one in enumerate(self.heard):
            one.complete(words(self.tokens))
            assert [usage["completion_tokens"] for usage in one.usages] == [self.tokens]
            if self.spoken:
                assert one.sound() == pcm(seed, self.tokens * UNIT_SAMPLES)


async def lost_owners(mesh: E2eMesh) -> float:
    """Count how often gateways had to find another owner for a request."""
    gateways = [one["replica_id"] for one in mesh.processes() if one["role"] == "gateway"]
    name = "stagemesh_gateway_lost_owners_total"
    return sum([(await mesh.metrics(gateway)).get(name, 0.0) for gateway in gateways])


async def busiest(mesh: E2eMesh, pool: str) -> tuple[str, int]:
    """Give the replica of a pool with the most attempts, and how many it has."""
    names = [f"{pool}-0", f"{pool}-1"]
    counts = await mesh.inflight(*names)
    return names[counts.index(max(counts))], max(counts)


@pytest.mark.parametrize(
    ("model", "count", "victim"),
    [
        ("echo", 50, "thinker"),
        ("talk", 50, "thinker"),
        ("talk", 20, "talker"),
        ("relay3", 50, "thinker"),
        ("relay3", 20, "coder"),
        ("relay3", 20, "talker"),
    ],
)
async def test_streams_go_on_when_one_of_two_workers_of_a_stage_is_killed(
    mesh: E2eMesh, doors: list[httpx.AsyncClient], model: str, count: int, victim: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, model, count)
        await streams.said(TOKENS // 4)
        name, share = await busiest(mesh, victim)
        assert share >= count // 4
        before = await mesh.one(name)
        mesh.kill(name)
    streams.check()
    await mesh.back(name, before)
    await mesh.settled(8)


async def test_streams_go_on_when_both_workers_of_a_stage_are_killed_in_turn(
    mesh: E2eMesh, doors: list[httpx.AsyncClient]
) -> None:
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, "echo", 20, tokens=800)
        await streams.said(50)
        before = [await mesh.one(name) for name in ("thinker-0", "thinker-1")]
        mesh.kill("thinker-0")
        await mesh.back("thinker-0", before[0])
        assert streams.unfinished == 20
        mesh.kill("thinker-1")
    streams.check()
    await mesh.back("thinker-1", before[1])
    await mesh.settled(8)


@pytest.mark.parametrize(("model", "count"), [("echo", 50), ("talk", 20), ("relay3", 20)])
async def test_streams_go_on_when_one_of_two_orchestrators_is_killed(
    mesh: E2eMesh, doors: list[httpx.AsyncClient], model: str, count: int
) -> None:
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, model, count)
        await streams.said(TOKENS // 4)
        shares = await mesh.inflight(*ORCHESTRATORS)
        assert min(shares) >= count // 4
        before, losses = await mesh.one(ORCHESTRATORS[1]), await lost_owners(mesh)
        mesh.kill(ORCHESTRATORS[1])
        killed_s = time.monotonic()
        await streams.said(TOKENS // 4 + 10)
        assert time.monotonic() - killed_s < 3
    streams.check()
    assert await lost_owners(mesh) - losses == shares[1]
    await mesh.back(ORCHESTRATORS[1], before)
    await mesh.settled(8)


async def test_streams_go_on_when_each_orchestrator_is_killed_in_turn(
    mesh: E2eMesh, doors: list[httpx.AsyncClient]
) -> None:
    before = [await mesh.one(name) for name in ORCHESTRATORS]
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, "talk", 20, tokens=800, each_ms=20)
        await streams.said(50)
        mesh.kill(ORCHESTRATORS[0])
        await mesh.back(ORCHESTRATORS[0], before[0])
        assert streams.unfinished == 20
        mesh.kill(ORCHESTRATORS[1])
    streams.check()
    await mesh.back(ORCHESTRATORS[1], before[1])
    await mesh.settled(8)


async def test_streams_go_on_when_both_orchestrators_are_killed_at_once(
    mesh: E2eMesh, doors: list[httpx.AsyncClient]
) -> None:
    """The launcher brings them back well within `redrive_s`."""
    before = [await mesh.one(name) for name in ORCHESTRATORS]
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, "talk", 20)
        await streams.said(50)
        for name in ORCHESTRATORS:
            mesh.kill(name)
    streams.check()
    for name, one in zip(ORCHESTRATORS, before, strict=True):
        await mesh.back(name, one)
    await mesh.settled(8)


async def test_an_orchestrator_that_stood_still_delivers_nothing_afterwards(
    mesh: E2eMesh, doors: list[httpx.AsyncClient]
) -> None:
    """Its requests go on elsewhere; when it wakes up, all that it still has to say is void."""
    stopped_s = 20.0
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, "talk", 20, tokens=1_500, each_ms=20)
        await streams.said(50)
        shares = await mesh.inflight(*ORCHESTRATORS)
        assert min(shares) >= 5
        losses = await lost_owners(mesh)
        pid = mesh.kill(ORCHESTRATORS[0], signal.SIGSTOP)
        begun_s = time.monotonic()
        try:
            await streams.said(200)
            assert time.monotonic() - begun_s < 12
            await asyncio.sleep(max(0.0, begun_s + stopped_s - time.monotonic()))
            assert streams.unfinished == 20
        finally:
            os.kill(pid, signal.SIGCONT)
    streams.check()
    assert await lost_owners(mesh) - losses == shares[0]
    await until(lambda: mesh.one(ORCHESTRATORS[0]), lambda now: bool(now["state"] == "ready"), 15)
    assert mesh.pids()[ORCHESTRATORS[0]] == pid
    await mesh.settled(8)


async def test_a_worker_and_an_orchestrator_may_be_killed_together(
    mesh: E2eMesh, doors: list[httpx.AsyncClient]
) -> None:
    names = ("thinker-0", ORCHESTRATORS[0])
    before = [await mesh.one(name) for name in names]
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, "relay3", 20)
        await streams.said(50)
        for name in names:
            mesh.kill(name)
    streams.check()
    for name, one in zip(names, before, strict=True):
        await mesh.back(name, one)
    await mesh.settled(8)


async def test_a_stream_that_goes_on_costs_one_prefill_more_and_no_other_costs_any(
    mesh: E2eMesh, doors: list[httpx.AsyncClient]
) -> None:
    """Counted where it is paid: each attempt that an engine takes is one prefill."""
    pair, ended = ("thinker-0", "thinker-1"), "stagemesh_worker_attempts_total"

    async def prefills(name: str) -> float:
        return (await mesh.metrics(name)).get(ended, 0.0)

    await mesh.settled(8)
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, "echo", 20)
        await streams.said(TOKENS // 4)
        shares = await mesh.inflight(*pair)
        victim, survivor = await mesh.one(pair[0]), pair[1]
        at_first = await prefills(survivor)
        mesh.kill(pair[0])
    streams.check()
    await mesh.back(pair[0], victim)
    await mesh.settled(8)
    assert sum(shares) == 20
    assert await prefills(survivor) - at_first == shares[1] + shares[0]
    assert await prefills(pair[0]) == 0, "its new life began after all had gone on"

    before = sum([await prefills(name) for name in pair])
    owner = await mesh.one(ORCHESTRATORS[0])
    async with asyncio.TaskGroup() as tasks:
        streams = Streams(doors, tasks, "echo", 20)
        await streams.said(TOKENS // 4)
        (bereft,) = await mesh.inflight(ORCHESTRATORS[0])
        mesh.kill(ORCHESTRATORS[0])
    streams.check()
    await mesh.back(ORCHESTRATORS[0], owner)
    await mesh.settled(8)
    assert sum([await prefills(name) for name in pair]) - before == 20 + bereft
