"""Relays on loopback between the processes of a mesh, put there through discovery, to be cut."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx

from tests.helpers.e2e_mesh import E2eMesh, until
from tests.helpers.relays import Relay

__all__ = ["CutLine", "cut_lines"]

PIECE_BYTES = 64 * 1024


class _Pair:
    """One connection through a relay; a silent one keeps what it was given."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers
        self.open = asyncio.Event()
        self.open.set()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what comes one way, until either end is gone."""
        with suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                await self.open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def reset(self) -> None:
        """Break it for both ends."""
        for writer in self._writers:
            writer.transport.abort()


class CutLine(Relay):
    """A relay in front of one address."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._pairs: set[_Pair] = set()
        self._silent = False

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._pairs)

    def reset(self) -> None:
        """Break all connections; new ones may come at once."""
        for pair in self._pairs:
            pair.reset()

    def silence(self) -> None:
        """Deliver nothing any more, as a network does that is cut: nobody is told."""
        self._silent = True
        for pair in self._pairs:
            pair.open.clear()

    def heal(self) -> None:
        """Deliver again, what was on its way first."""
        self._silent = False
        for pair in self._pairs:
            pair.open.set()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection; where nobody listens behind the relay, break it at once."""
        try:
            back, there = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, there)
        if self._silent:
            pair.open.clear()
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(pair.pump(reader, there))
                both.create_task(pair.pump(back, writer))
        finally:
            self._pairs.discard(pair)
            pair.reset()


@asynccontextmanager
async def cut_lines(mesh: E2eMesh) -> AsyncIterator[dict[str, CutLine]]:
    """Put a relay in front of every worker and every orchestrator's link port, by its name.

    As long as the block lasts the mesh's own links go through them.
    """
    path = mesh.folder / "discovery.json"
    found = json.loads(path.read_text())
    async with AsyncExitStack() as stack:
        lines: dict[str, CutLine] = {}
        for entries in found["groups"].values():
            for entry in entries:
                line = await stack.enter_async_context(CutLine(entry["address"]))
                lines[entry["id"]] = line
                entry["address"] = line.address
        _replace(path, json.dumps(found))
        await _moved(mesh, lines)
        yield lines


async def _moved(mesh: E2eMesh, lines: dict[str, CutLine]) -> None:
    """Wait until everybody is linked through the relays, and says so."""
    gateways = [one for one in mesh.processes() if one["role"] == "gateway"]
    orchestrators = sum(name.startswith("orchestrator") for name in lines)

    async def linked() -> bool:
        counts = {name: line.connections for name, line in lines.items()}
        return all(
            count >= (len(gateways) if name.startswith("orchestrator") else orchestrators)
            for name, count in counts.items()
        )

    async def told() -> list[tuple[int, int]]:
        async with httpx.AsyncClient(timeout=10) as http:
            answers = [await http.get(f"http://{one['address']}/ready") for one in gateways]
        return [(answer.status_code, answer.json()["links"]) for answer in answers]

    await until(linked, bool, 20)
    await until(told, lambda all_: all_ == [(200, orchestrators)] * len(gateways), 20)


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(".discovery.draft")
    draft.write_text(text)
    draft.replace(path)
