"""A killed worker takes vLLM's processes with it, and what they left is cleaned."""

import asyncio
import os
import sys
import tempfile
import time
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


def shared_memory() -> set[str]:
    """List what lies in shared memory, but for the payload stores of other processes."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("stagemesh-")}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Make a temporary folder whose path is short enough for the names of sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def scratch_folders(temporary: Path) -> list[Path]:
    """List the scratch folders, of the living and of the dead."""
    return [folder for folder in temporary.glob("stagemesh-vllm-*/*") if folder.is_dir()]


async def test_after_a_kill_no_process_and_no_shared_memory_is_left(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shared_memory()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.helpers.engine_program", "vllm"),
        *(msgspec.json.encode(CASE.config).decode(), str(temporary)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(CASE.load_s):
        while (await process.stdout.readline()) != b"loaded\n":
            assert process.returncode is None
    descendants = psutil.Process(process.pid).children(recursive=True)
    assert len(descendants) >= 2
    began_s = time.monotonic()
    process.kill()
    await process.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, descendants, GONE_S_MAX)
    assert not alive, alive
    assert time.monotonic() - began_s < GONE_S_MAX
    assert shared_memory() <= before
    assert scratch_folders(temporary)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    Scratch("vllm").close()
    assert not scratch_folders(temporary)
