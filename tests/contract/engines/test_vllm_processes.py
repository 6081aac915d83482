"""A killed worker takes vLLM's processes with it, and what they left is cleaned."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from services.stage_worker.engines.support.scratch import Scratch
from tests.contract.engines.case_vllm import CASE
from tests.helpers.engines import MODEL_MARKS

pytestmark = [
    pytest.mark.skipif(bool(CASE.missing()), reason=CASE.missing() or "all is there"),
    *MODEL_MARKS,
]

GONE_S_MAX = 5.0


def shared_memory_of(processes: list[psutil.Process]) -> set[str]:
    """List what lies in shared memory and is mapped by one of the processes."""
    maps = [Path(f"/proc/{process.pid}/maps").read_text() for process in processes]
    lines = [line for text in maps for line in text.splitlines() if " /dev/shm/" in line]
    inodes = {int(line.split()[4]) for line in lines}
    return {file.name for file in os.scandir("/dev/shm") if file.inode() in inodes}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Make a temporary folder whose path is short enough for the names of sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def scratch_folders(temporary: Path) -> list[Path]:
    """List the scratch folders, of the living and of the dead."""
    return [folder for folder in temporary.glob("stagemesh-vllm-*/*") if folder.is_dir()]


async def loaded(temporary: Path) -> asyncio.subprocess.Process:
    """Start a program that loads vLLM, and wait until it has."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.helpers.engine_program", "vllm"),
        *(msgspec.json.encode(CASE.config).decode(), str(temporary)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(CASE.load_s):
        while (line := await process.stdout.readline()) != b"loaded\n":
            assert line, "it ended before it was loaded"
    return process


async def test_after_a_kill_no_process_and_no_shared_memory_is_left(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await loaded(temporary)
    descendants = psutil.Process(process.pid).children(recursive=True)
    models = [one for one in descendants if "resource_tracker" not in " ".join(one.cmdline())]
    trackers = [one for one in descendants if one not in models]
    assert len(models) >= 2
    held = shared_memory_of(models)
    assert any(name.startswith("psm_") for name in held)
    for tracker in trackers:  # As if all of a process group or of a container were killed.
        tracker.kill()
    process.kill()
    await process.communicate()
    _, alive = await asyncio.to_thread(psutil.wait_procs, descendants, GONE_S_MAX)
    for one in alive:
        one.kill()
    assert not alive
    assert scratch_folders(temporary)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    Scratch("vllm").close()  # As the next worker does.
    assert not scratch_folders(temporary)
    assert held.isdisjoint(os.listdir("/dev/shm"))
