"""A gateway without HTTP: one real link to an orchestrator, and everything that came over it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from stagemesh.api.types.v1 import link_pb2, request_pb2
from stagemesh.ids import new_incarnation
from stagemesh.link.core import NO_SOURCE, REQUEST_SOURCE, Grant, Journal, Row, SlotMint
from stagemesh.link.pump import (
    Attach,
    Dialer,
    Link,
    LinkPolicy,
    Received,
    journal_to_proto,
    placed_from_proto,
)
from stagemesh.outcome import End, FinishReason
from tests.helpers.core_gateway import GatewayJournal

__all__ = ["FakeGateway"]


class FakeGateway(AbstractAsyncContextManager["FakeGateway"]):
    """Keeps one link; it grants credit only when a test says so."""

    def __init__(
        self,
        attach: Attach,
        *,
        service: link_pb2.ServiceKind.ValueType = link_pb2.SERVICE_KIND_GATEWAY,
        window_units: int = 64,
    ) -> None:
        self.link: Link | None = None
        self.rows: list[Row] = []
        self.frames: list[link_pb2.Frame] = []
        self.grants: list[Grant] = []
        self.lost_reasons: list[str] = []
        self._service = service
        self._window_units = window_units
        self._incarnation = new_incarnation()
        self._slots = SlotMint()
        self._stirred = asyncio.Event()
        self._dialer = Dialer(
            attach, hello=self._hello, ping=link_pb2.Ping, events=self, policy=LinkPolicy()
        )
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Dial, and wait for the link."""
        self._task = asyncio.create_task(self._dialer.run())
        await self.until(lambda: self.link is not None or bool(self.lost_reasons))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Break the link."""
        await self.leave()

    async def leave(self) -> None:
        """Break the link, as a gateway does that dies."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until what came over the link is what a test waits for."""
        async with asyncio.timeout(10):
            while not reached():
                self._stirred.clear()
                await self._stirred.wait()

    def open(
        self,
        request: request_pb2.Request,
        *,
        deadline_left_s: float = 0.0,
        request_id: str = "",
        epoch: int = 1,
        journal: Journal | None = None,
        more: bool = False,
        streamed: bool = False,
    ) -> int:
        """Give a request to the orchestrator; its slot is returned."""
        slot = self._slots.next()
        self.send(
            link_pb2.Frame(
                open=link_pb2.Open(
                    slot=slot,
                    request_id=request_id or f"req_{self._incarnation:x}_{slot}",
                    epoch=epoch,
                    deadline_left_s=deadline_left_s,
                    request=request,
                    journal=journal_to_proto(journal or Journal()),
                    more=more,
                    streamed=streamed,
                )
            )
        )
        return slot

    def journal(self, slot: int) -> Journal:
        """Give what came for a slot, as the next owner gets it."""
        kept = GatewayJournal()
        for row in self.rows:
            if row.slot == slot:
                kept.take(row)
        for frame in self.frames:
            if frame.HasField("placed") and frame.placed.slot == slot:
                placed = placed_from_proto(frame.placed)
                kept.placed[placed.stage, placed.role] = placed
        return kept.told()

    def send(self, frame: link_pb2.Frame) -> None:
        """Send a frame."""
        assert self.link is not None
        self.link.send_frame(frame)

    def append(
        self, slot: int, pos: int, text: str = "", *, segment_end: bool = False, end: bool = False
    ) -> None:
        """Give a piece of a request's input, or its bare end."""
        assert self.link is not None
        row = Row(slot, REQUEST_SOURCE, pos, 0 if end else 1, text, segment_end=segment_end)
        row.end = End(finish_reason=FinishReason.STOP) if end else None
        self.link.send_rows([row])

    def grant(self, slot: int, units_total: int) -> None:
        """Return credit, in units; bytes are never short."""
        assert self.link is not None
        self.link.send_grants([Grant(slot, NO_SOURCE, units_total, 1 << 30)])

    def texts(self, slot: int) -> list[str]:
        """Give the texts that came for a slot, in order."""
        return [row.text for row in self.rows if row.slot == slot]

    def terminal(self, slot: int) -> link_pb2.Terminal | None:
        """Give the terminal of a slot, if it has come."""
        terminals = [
            frame.terminal
            for frame in self.frames
            if frame.HasField("terminal") and frame.terminal.slot == slot
        ]
        assert len(terminals) < 2, "a request ends once"
        return terminals[0] if terminals else None

    def attached(self, link: Link) -> None:
        """Take the orchestrator."""
        self.link = link
        self._stirred.set()

    def received(self, link: Link, received: Received) -> None:
        """Note what came."""
        del link
        self.rows += received.rows
        self.frames += received.frames
        self.grants += received.grants
        self._stirred.set()

    def lost(self, link: Link, reason: str) -> None:
        """Note that the link is over."""
        del link
        self.link = None
        self.lost_reasons.append(reason)
        self._stirred.set()

    def _hello(self) -> link_pb2.Hello:
        return link_pb2.Hello(
            service=self._service,
            id="g-0",
            incarnation=self._incarnation,
            limits=link_pb2.LinkLimits(window_units=self._window_units, window_bytes=1 << 20),
            state=link_pb2.PROCESS_STATE_READY,
        )
