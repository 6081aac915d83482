"""A holder that is killed leaves nothing once its successor runs; `/dev/shm` is the real one."""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from stagemesh.errors import MeshError
from stagemesh.media import Handle
from stagemesh.payload import PayloadReader, remove_dead
from tests.helpers.payloads import MIB, noise, store_in

SHM = Path("/dev/shm")

FORKING = """
import os, sys
from pathlib import Path
from stagemesh.payload.files import ProbeFile, store_prefix
held = ProbeFile(Path(sys.argv[1]), store_prefix("w", 1))
if os.fork() == 0:  # The child outlives the worker, until its input ends.
    os.write(1, b"forked")
    os.read(0, 1)
os._exit(0)
"""


@pytest.fixture
def holder_id() -> str:
    return f"test-{secrets.token_hex(4)}"


def left_by(holder_id: str) -> list[Path]:
    return list(SHM.glob(f"stagemesh-{holder_id}-*"))


@asynccontextmanager
async def holder(holder_id: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[Handle]]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.helpers.payload_program", str(SHM), holder_id),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        yield process, msgspec.json.decode(line, type=list[Handle])
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        remove_dead(SHM, holder_id)


async def test_another_process_on_the_host_reads_it_without_a_socket(holder_id: str) -> None:
    async with holder(holder_id) as (_, handles), PayloadReader() as reader:
        assert [bytes(await reader.get(handle)) for handle in handles] == [
            noise(100),
            noise(2 * MIB),
        ]


async def test_after_a_kill_and_a_restart_nothing_is_left(holder_id: str) -> None:
    async with holder(holder_id) as (process, handles):
        process.kill()
        await process.wait()
        assert len(left_by(holder_id)) == len(handles) + 1
        successor = store_in(SHM, holder_id=holder_id, incarnation=1)
        kept = successor.put(b"new", "req_2")
        assert {path.name for path in left_by(holder_id)} == {
            f"stagemesh-{holder_id}-{1:016x}-probe",
            f"stagemesh-{holder_id}-{1:016x}-{kept.handle_id}",
        }
        async with PayloadReader() as reader:
            with pytest.raises(MeshError) as caught:
                await reader.get(handles[0])
        assert caught.value.info.reason == "handle_lost"
        successor.close()
        assert left_by(holder_id) == []


async def test_a_living_holder_of_the_same_name_is_not_robbed(holder_id: str) -> None:
    async with holder(holder_id) as (_, handles), PayloadReader() as reader:
        double = store_in(SHM, holder_id=holder_id, incarnation=1)
        double.close()
        assert bytes(await reader.get(handles[1])) == noise(2 * MIB)


def test_a_child_that_outlives_its_parent_keeps_nothing_alive(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", FORKING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with worker:
        assert worker.stdout is not None
        assert worker.stdout.read(6) == b"forked"
        assert worker.wait(30) == 0
        assert remove_dead(tmp_path, "w") == 1
