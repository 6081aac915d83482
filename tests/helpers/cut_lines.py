"""Relays on loopback between the processes of a mesh, put there through discovery, to be cut."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import httpx

from stagemesh.cli.ports import free_ports
from tests.helpers.e2e_mesh import E2eMesh, until

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


class CutLine:
    """A relay in front of one address."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._pairs: set[_Pair] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self._silent = False
        self.address = f"127.0.0.1:{free_ports(1)[0]}"

    async def __aenter__(self) -> Self:
        host, _, port = self.address.partition(":")
        self._server = await asyncio.start_server(self._connected, host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        if self._relays:
            await asyncio.wait(self._relays)

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

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, there = await asyncio.open_connection(*self._target)
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
