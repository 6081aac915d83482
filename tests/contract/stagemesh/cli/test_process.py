import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stagemesh.cli.plan import ProcessSpec
from stagemesh.cli.process import child_environment, end_group, spawn, tell
from stagemesh.cli.supervision import Role
from tests.helpers.switchboard import FAKE, Switchboard, eventually_gone

LAUNCHER = """
import asyncio, sys
from pathlib import Path
from stagemesh.cli.plan import ProcessSpec
from stagemesh.cli.process import spawn
from stagemesh.cli.supervision import Role

async def main():
    command = (sys.executable, sys.argv[1], "fake", sys.argv[2])
    spec = ProcessSpec(role=Role.GATEWAY, id="fake", address="", command=command)
    process = await spawn(spec, Path(sys.argv[3]))
    await process.wait()

asyncio.run(main())
"""


def fake(board: Switchboard) -> ProcessSpec:
    command = (sys.executable, FAKE, "fake", str(board.port))
    return ProcessSpec(role=Role.GATEWAY, id="fake", address="", command=command, env={"A": "b"})


async def test_a_process_dies_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    async with Switchboard() as board:
        arguments = [FAKE, str(board.port), str(tmp_path / "log")]
        launcher = await asyncio.create_subprocess_exec(sys.executable, "-c", LAUNCHER, *arguments)
        line = await board.line("fake")
        launcher.kill()
        assert await eventually_gone(line.pid)
        await launcher.wait()


async def test_a_process_has_a_group_and_the_environment_it_was_given(tmp_path: Path) -> None:
    async with Switchboard() as board:
        process = await spawn(fake(board), tmp_path / "log")
        line = await board.line("fake")
        assert line.pid == process.pid == os.getpgid(process.pid)
        line.tell("env A")
        assert await line.hear() == "b"
        tell(process.pid)
        assert await line.hear() == "term"
        line.tell("go")
        assert await process.wait() == 0


async def test_a_group_ends_with_all_its_members(tmp_path: Path) -> None:
    async with Switchboard() as board:
        process = await spawn(fake(board), tmp_path / "log")
        line = await board.line("fake")
        line.tell("fork")
        child = int(await line.hear())
        end_group(process.pid)
        assert await process.wait() == -signal.SIGKILL
        assert await eventually_gone(child)
        end_group(process.pid)
        tell(process.pid)


async def test_a_tethered_program_of_nobody_does_not_start(tmp_path: Path) -> None:
    tether = Path(sys.modules["stagemesh.cli.tether"].__file__ or "")
    mark = tmp_path / "started"
    command = [sys.executable, "-I", "-S", str(tether), "1", "/usr/bin/touch", str(mark)]
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 1
    assert not mark.exists()


def test_services_can_be_imported_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    environment = child_environment({"B": "c"})
    assert environment["B"] == "c"
    assert environment["PYTHONPATH"].endswith(":/elsewhere")
    command = [sys.executable, "-c", "import services.stage_worker"]
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode == 0
