import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stagemesh.cli.launcher import Launcher
from stagemesh.cli.plan import Plan, ProcessSpec
from stagemesh.cli.ports import free_ports
from stagemesh.cli.progress import Row
from stagemesh.cli.readiness import Probes
from stagemesh.cli.run_folder import RunFolder, read_state
from stagemesh.cli.supervision import Role, SupervisionPolicy
from stagemesh.payload.files import store_prefix
from tests.helpers.switchboard import FAKE, Line, Switchboard, eventually_gone

ADDRESS = "127.0.0.1:1"
NAMES = ("gateway-0", "orchestrator-0", "thinker-0")
QUICK = SupervisionPolicy(backoff_min_s=0.01, backoff_max_s=0.02, fast_deaths_max=3)


class Shown:
    """Keeps what people would see."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._rows: set[Row] = set()
        self._news = asyncio.Event()

    def show(self, rows: Sequence[Row]) -> None:
        """Take the rows of a table."""
        self._rows = set(rows)
        self._news.set()

    def say(self, text: str) -> None:
        """Take a line."""
        self.said.append(text)
        self._news.set()

    def done(self) -> None:
        """Take that no table follows."""

    async def until(self, row: Row, deadline_s: float = 10.0) -> None:
        """Wait until a row is shown."""
        async with asyncio.timeout(deadline_s):
            while row not in self._rows:
                self._news.clear()
                await self._news.wait()

    async def until_said(self, text: str) -> None:
        """Wait until a line is told."""
        async with asyncio.timeout(10.0):
            while text not in self.said:
                self._news.clear()
                await self._news.wait()


class Run:
    """A launcher at work on fake services."""

    def __init__(self, board: Switchboard, folder: RunFolder) -> None:
        self.board = board
        self.shown = Shown()
        self.announced = asyncio.Event()
        self.announcements = 0
        self.models = asyncio.Event()
        roles = (Role.GATEWAY, Role.ORCHESTRATOR, Role.STAGE_WORKER)
        specs = tuple(spec(name, role, board.port) for name, role in zip(NAMES, roles, strict=True))
        self.folder = folder
        self.launcher = Launcher(
            Plan(processes=specs, models=("m",), discovery="{}"),
            folder,
            self.shown,
            probes=Probes(process=lambda asked: board.readiness(asked.id), models=self._served),
            announce=self.announce,
            policy=QUICK,
        )
        self.task = asyncio.create_task(self.launcher.run())

    async def _served(self, _: Plan) -> None:
        await self.models.wait()

    def announce(self) -> None:
        """Count what should come once."""
        self.announcements += 1
        self.announced.set()

    async def come_up(self) -> dict[str, Line]:
        """Wait until everything is ready; give the services' lines."""
        lines = {name: await self.board.line(name) for name in NAMES}
        for name in NAMES:
            self.board.make_ready(name)
        self.models.set()
        async with asyncio.timeout(10):
            await self.announced.wait()
        return lines

    def state_of(self, name: str) -> dict[str, Any]:
        """Give what `status` would read of a process."""
        records: list[dict[str, Any]] = read_state(ADDRESS)["processes"]
        return {record["replica_id"]: record for record in records}[name]

    async def end(self) -> int:
        """Wait for the launcher's end; give its code."""
        async with asyncio.timeout(10):
            return await self.task


def spec(name: str, role: Role, port: int) -> ProcessSpec:
    command = [sys.executable, FAKE, name, str(port)]
    worker = role is Role.STAGE_WORKER
    (own,) = free_ports(1)
    address = f"127.0.0.1:{own}"
    if role is Role.ORCHESTRATOR:
        command += ["--link", address]
    return ProcessSpec(
        role=role,
        id=name,
        address=address,
        command=tuple(command),
        pool="thinker" if worker else "",
        private=(address,) if worker else (),
    )


@asynccontextmanager
async def running(cache: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    async with Switchboard() as board:
        with RunFolder(ADDRESS) as folder:
            run = Run(board, folder)
            try:
                yield run
            finally:
                run.launcher.stop()
                run.launcher.stop()
                await run.end()


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    async with running(tmp_path, monkeypatch) as run:
        yield run


async def test_ready_is_announced_once_when_all_are_ready_and_the_models_are_served(
    run: Run,
) -> None:
    for name in NAMES:
        await run.board.line(name)
    for name in NAMES[:2]:
        run.board.make_ready(name)
    run.models.set()
    await asyncio.sleep(0)
    assert run.announcements == 0
    run.board.make_ready("thinker-0")
    await run.announced.wait()
    assert run.announcements == 1
    assert read_state(ADDRESS)["ready"] is True


async def test_ready_waits_for_the_models(run: Run) -> None:
    for name in NAMES:
        await run.board.line(name)
        run.board.make_ready(name)
    await run.shown.until(Row("thinker-0", "ready", ""))
    assert run.announcements == 0
    run.models.set()
    await run.announced.wait()


@pytest.mark.invariant("ORCH-INV-300")
async def test_processes_stop_kind_by_kind_and_the_launcher_gives_0(run: Run) -> None:
    lines = await run.come_up()
    run.launcher.stop()
    for name in NAMES:
        assert await lines[name].hear() == "term"
        later = [other for other in NAMES if NAMES.index(other) > NAMES.index(name)]
        assert {run.state_of(other)["state"] for other in later} <= {"ready"}
        lines[name].tell("go")
        assert await lines[name].hear() == ""
    assert await run.end() == 0
    assert run.shown.said == []


async def test_a_second_signal_ends_everything_at_once(run: Run) -> None:
    lines = await run.come_up()
    lines["gateway-0"].tell("deaf")
    assert await lines["gateway-0"].hear() == "deaf"
    run.launcher.stop()
    run.launcher.stop()
    assert await run.end() == 1
    for line in lines.values():
        assert await eventually_gone(line.pid)


async def test_a_process_that_dies_comes_back_and_the_others_never_notice(run: Run) -> None:
    lines = await run.come_up()
    os.kill(lines["thinker-0"].pid, signal.SIGKILL)
    again = await run.board.line("thinker-0")
    assert again.pid != lines["thinker-0"].pid
    record = run.state_of("thinker-0")
    assert record["pid"] == again.pid
    assert run.shown.said[0] == "thinker-0 was killed by signal 9; again in 0 s"
    await run.shown.until_said("thinker-0 is ready again")
    for name in NAMES[:2]:
        assert run.state_of(name)["pid"] == lines[name].pid
    assert run.announcements == 1


async def test_what_a_dead_process_had_started_is_gone_too(run: Run) -> None:
    lines = await run.come_up()
    lines["thinker-0"].tell("fork")
    child = int(await lines["thinker-0"].hear())
    os.kill(lines["thinker-0"].pid, signal.SIGKILL)
    await run.board.line("thinker-0")
    assert await eventually_gone(child)


async def test_a_crash_loop_is_shown_with_its_last_lines_while_the_rest_stays_up(
    run: Run,
) -> None:
    lines = {name: await run.board.line(name) for name in NAMES}
    line = lines["thinker-0"]
    for life in range(3):
        line.tell(f"log words-{life}")
        line.tell("exit 3")
        line = await run.board.line("thinker-0")
    record = run.state_of("thinker-0")
    assert record["state"] == "crash-loop"
    assert [json.loads(text) for text in record["last_log"]] == [{"event": "words-2"}]
    assert "crash-loop" in run.shown.said[-1]
    assert "words-2" in run.shown.said[-1]
    for name in NAMES[:2]:
        assert run.state_of(name)["pid"] == lines[name].pid
    run.board.make_ready("thinker-0")
    await run.shown.until(Row("thinker-0", "ready", ""))
    assert "last_log" not in run.state_of("thinker-0")


async def test_a_mesh_that_is_stopped_while_it_loads_stops_cleanly(run: Run) -> None:
    lines = {name: await run.board.line(name) for name in NAMES}
    run.launcher.stop()
    for name in NAMES:
        assert await lines[name].hear() == "term"
        lines[name].tell("go")
    assert await run.end() == 0
    assert run.announcements == 0


async def test_a_process_that_ends_badly_while_the_mesh_stops_is_told(run: Run) -> None:
    lines = await run.come_up()
    run.launcher.stop()
    for name in NAMES:
        assert await lines[name].hear() == "term"
        lines[name].tell("exit 4" if name == "thinker-0" else "go")
    assert await run.end() == 1
    assert run.shown.said == ["thinker-0 exited with 4 while the mesh stopped"]


async def test_what_a_worker_says_while_it_loads_is_shown(run: Run) -> None:
    lines = {name: await run.board.line(name) for name in NAMES}
    for _ in range(10):
        # Said again each time: the first may come before anybody watches the folder.
        lines["thinker-0"].tell("load weights, half")
        try:
            await run.shown.until(Row("thinker-0", "starting", "weights, half"), deadline_s=1.0)
        except TimeoutError:
            continue
        break
    else:
        pytest.fail("nobody was shown what the worker said")


async def test_a_process_whose_port_somebody_took_comes_back_at_another_and_is_found_there(
    run: Run,
) -> None:
    lines = await run.come_up()
    before = run.state_of("thinker-0")["address"]
    host, _, port = before.partition(":")
    with socket.create_server((host, int(port))):
        os.kill(lines["thinker-0"].pid, signal.SIGKILL)
        await run.board.line("thinker-0")
    after = run.state_of("thinker-0")["address"]
    assert after != before
    assert f"thinker-0: {before} is taken, it gets {after}" in run.shown.said
    groups = json.loads((run.folder.path / "discovery.json").read_text())["groups"]
    assert groups["pool/thinker"] == [{"id": "thinker-0", "address": after}]
    assert groups["orchestrators"] == [
        {"id": "orchestrator-0", "address": run.state_of("orchestrator-0")["address"]}
    ]


async def test_what_a_killed_process_held_for_others_goes_with_the_mesh_at_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = tmp_path / "payloads"
    payloads.mkdir()
    monkeypatch.setenv("STAGEMESH_PAYLOAD_DIRECTORY", str(payloads))
    for holder in ("thinker-0", "of-another-mesh-0"):
        (payloads / f"{store_prefix(holder, 1)}-probe").write_bytes(b"0123456789abcdef")
    async with running(tmp_path, monkeypatch) as run:
        await run.come_up()
        assert len(list(payloads.iterdir())) == 2
    assert [path.name for path in payloads.iterdir()] == [
        f"{store_prefix('of-another-mesh-0', 1)}-probe"
    ]
