"""Ends of links for tests: a recorder of what happens, a wire in memory, a clock by hand."""

import asyncio
from collections.abc import Callable

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump import Link, Received
from stagemesh.link.pump.wires import Broken

WAIT_S = 10.0
"""How long a test waits for what must happen."""


def hello(
    name: str = "w-1",
    service: link_pb2.ServiceKind.ValueType = link_pb2.SERVICE_KIND_STAGE_WORKER,
    *,
    incarnation: int = 7,
) -> link_pb2.Hello:
    """A Hello with the usual first window."""
    return link_pb2.Hello(
        service=service,
        id=name,
        incarnation=incarnation,
        state=link_pb2.PROCESS_STATE_READY,
        limits=link_pb2.LinkLimits(window_units=64, window_bytes=1 << 20),
    )


def ping() -> link_pb2.Ping:
    """A Ping of a ready process."""
    return link_pb2.Ping(state=link_pb2.PROCESS_STATE_READY, steps=3)


class Recorder:
    """Keeps what a link tells, and wakes whoever waits for it."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.got: list[Received] = []
        self.losses: list[tuple[Link, str]] = []
        self.when_received: Callable[[Link, Received], None] | None = None
        self._changed = asyncio.Event()

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        self.links.append(link)
        self._changed.set()

    def received(self, link: Link, received: Received) -> None:
        """See `LinkEvents`; nothing may come after the loss."""
        assert link not in [lost for lost, _ in self.losses]
        self.got.append(received)
        if self.when_received is not None:
            self.when_received(link, received)
        self._changed.set()

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`; at most once."""
        assert link in self.links
        assert link not in [lost for lost, _ in self.losses]
        self.losses.append((link, reason))
        self._changed.set()

    @property
    def reasons(self) -> list[str]:
        """Why links were lost."""
        return [reason for _, reason in self.losses]

    @property
    def kinds(self) -> list[str | None]:
        """The kinds of all frames that came."""
        return [frame.WhichOneof("kind") for got in self.got for frame in got.frames]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds of what was recorded.

        Raises:
            TimeoutError: If it does not come to hold.
        """
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class MemoryWire:
    """A wire whose other side is the test."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[link_pb2.LinkMessage | Exception | None] = asyncio.Queue()
        self.written: asyncio.Queue[link_pb2.LinkMessage] = asyncio.Queue()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.finished = False
        self.peer_closes = False

    async def read(self) -> link_pb2.LinkMessage | None:
        """See `Wire`."""
        item = await self.inbox.get()
        if isinstance(item, Exception):
            raise item
        return item

    async def write(self, message: link_pb2.LinkMessage) -> None:
        """See `Wire`; waits while the test does not let it."""
        await self.may_write.wait()
        self.written.put_nowait(message)

    async def finish(self) -> bool:
        """See `Wire`."""
        self.finished = True
        return self.peer_closes

    def break_off(self, why: str = "gone") -> None:
        """Break the stream."""
        self.inbox.put_nowait(Broken(why))


class ManualClock:
    """A clock that the test sets."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The time."""
        return self.now_s
