"""What relays on loopback have in common: they stand in front of one address."""

import asyncio
from abc import ABC, abstractmethod
from typing import Self

from stagemesh.cli.ports import free_ports

__all__ = ["Relay"]


class Relay(ABC):
    """Listens at `address` for as long as its block lasts; a subclass carries what comes."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._relays: set[asyncio.Task[None]] = set()

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

    @abstractmethod
    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, both ways, until it is over."""

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(self.relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)
