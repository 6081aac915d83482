"""Files are written again while other processes read, keep what they read, fork and die."""

import asyncio
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pytest

from stagemesh.payload import PayloadStore, remove_dead
from tests.helpers.payload_reader_program import Order, filled
from tests.helpers.payloads import MIB, inode_of, store_in

SHM: Final = Path("/dev/shm")
"""It gives no inode number twice, so the numbers tell which files were written again."""

READERS: Final = 3
PUTS: Final = 300

FORKING: Final = """
import os, sys
from pathlib import Path
from stagemesh.payload.files import data_path
from tests.helpers.payloads import MIB, noise, store_in

store = store_in(Path(sys.argv[1]))
handle = store.put(noise(MIB), "req_1")
view = store.read(handle.handle_id, "req_1")
told, tell = os.pipe()
child = os.fork()
if child == 0:
    os.read(told, 1)
    os._exit(0 if view == noise(MIB) else 3)
view.release()
inode = data_path(handle.probe, handle.handle_id).stat().st_ino
store.release("req_1")
for left in (2, 1):
    handle = store.put(bytes(MIB), "req_2")
    same = data_path(handle.probe, handle.handle_id).stat().st_ino == inode
    print("written again" if same else "left alone", flush=True)
    store.release("req_2")
    if left == 2:
        os.write(tell, b"x")
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
store.close()
"""


class Reader:
    """One reading process, what it was sent, and what it said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.waiting = 0
        self.said = {b"read\n": 0, b"lost\n": 0}

    async def send(self, order: Order) -> None:
        """Send an order, and be at most two ahead of the answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")
        await self.process.stdin.drain()
        self.waiting += 1
        while self.waiting > 2:
            await self.hear()

    async def hear(self) -> None:
        """Wait for an answer."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line in self.said, f"a reader ended with {await self.process.wait()}"
        self.said[line] += 1
        self.waiting -= 1

    async def end(self) -> int:
        """Hear all answers, and let it end by itself."""
        while self.waiting:
            await self.hear()
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.process.wait()


@asynccontextmanager
async def readers(count: int, draw: random.Random) -> AsyncIterator[list[Reader]]:
    running: list[Reader] = []
    try:
        while len(running) < count:
            running.append(await reader(draw))
        yield running
    finally:
        for one in running:
            with suppress(ProcessLookupError):
                one.process.kill()
            await one.process.wait()


async def reader(draw: random.Random) -> Reader:
    return Reader(
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.helpers.payload_reader_program"),
            str(draw.randrange(1000)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
    )


@pytest.fixture
def store() -> Iterator[PayloadStore]:
    holder_id = f"test-{secrets.token_hex(4)}"
    made = store_in(SHM, holder_id=holder_id)
    yield made
    made.close()
    assert remove_dead(SHM, holder_id) == 0


@pytest.mark.invariant("PAYLOAD-INV-100")
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_reader_sees_a_byte_of_another_payload(store: PayloadStore, seed: int) -> None:
    draw = random.Random(seed)
    inodes: set[int] = set()
    said = {b"read\n": 0, b"lost\n": 0}
    late: list[str] = []
    async with readers(READERS, draw) as running:
        for number in range(PUTS):
            size_bytes = draw.randrange(MIB // 4, MIB)
            data, request_id = filled(number, size_bytes), f"req_{number}"
            if draw.random() < 0.3:
                handle = await store.put_large(data, request_id)
            else:
                handle = store.put(data, request_id)
            inodes.add(inode_of(handle))
            for one in draw.sample(running, draw.randint(1, 2)):
                await one.send(Order(handle, number))
            late.append(request_id)
            while len(late) > draw.randint(0, 3):  # At 0 they are about to open the file.
                store.release(late.pop(0))
            if draw.random() < 0.02:
                dying = draw.randrange(READERS)
                running[dying].process.send_signal(signal.SIGKILL)
                assert await running[dying].process.wait() == -signal.SIGKILL
                running[dying] = await reader(draw)
        for one in running:
            assert await one.end() == 0
            said = {word: said[word] + one.said[word] for word in said}
    assert min(said.values()) > 0, said
    assert len(inodes) < PUTS * 0.8, "hardly any file was written again"


@pytest.mark.invariant("PAYLOAD-INV-100")
def test_a_forked_child_keeps_what_its_parent_had_mapped() -> None:
    with TemporaryDirectory(dir=SHM) as folder:
        said = subprocess.run(
            [sys.executable, "-c", FORKING, folder], stdout=subprocess.PIPE, check=True, timeout=30
        )
    assert said.stdout.split(b"\n") == [b"left alone", b"0", b"written again", b""]
