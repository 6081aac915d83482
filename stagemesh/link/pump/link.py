"""One link: a task that reads, a task that writes, and one timer.

Whatever is sent while a write is under way goes in the next one: batches form by themselves, and
nothing waits for a timer. The reader calls `LinkEvents` synchronously, so no request can block it,
and after frames it gives way to everything else on the loop, so a burst of them blocks nobody.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import Grant, Liveness, Outbox, Row
from stagemesh.link.pump.codec import Received, WireFault, decode, encode
from stagemesh.link.pump.greeting import greet, read_greeting
from stagemesh.link.pump.policy import LinkEnd, LinkPolicy
from stagemesh.link.pump.wires import Broken, Wire
from stagemesh.rpc import MESSAGE_BYTES_MAX

__all__ = ["FRAME_BYTES_MAX", "FrameTooLarge", "Link", "LinkEvents"]

FRAME_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 1024
"""The largest frame: what gRPC takes, less what surrounds the frame."""

_WAY: Final = 4
"""How many times as long as frames took their reader gives way: a burst keeps a fifth of a loop."""

_ids = itertools.count(1)


class FrameTooLarge(ValueError):
    """A frame does not fit into a message of a link."""


class LinkEvents(Protocol):
    """Who is told what happens on links; nothing here may wait."""

    def attached(self, link: "Link") -> None:
        """A link opened; its peer is in `link.peer`."""

    def received(self, link: "Link", received: Received) -> None:
        """A message came, or a step of one."""

    def lost(self, link: "Link", reason: str) -> None:
        """A link that was attached is over: exactly once, and the last that is heard of it."""


class Link:
    """One end of a link. What is sent after its end goes nowhere: everything on it is over."""

    def __init__(
        self,
        wire: Wire,
        *,
        hello: Callable[[], link_pb2.Hello],
        ping: Callable[[], link_pb2.Ping],
        events: LinkEvents,
        policy: LinkPolicy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = next(_ids)
        self.peer = link_pb2.Hello()
        self.attached = False
        self._wire = wire
        self._hello = hello
        self._ping = ping
        self._events = events
        self._policy = policy
        self._clock = clock
        self._outbox = Outbox(bytes_max=policy.message_bytes_max, rows_max=policy.message_rows_max)
        self._liveness = Liveness(
            heartbeat_s=policy.heartbeat_s, peer_lost_s=policy.peer_lost_s, now_s=clock()
        )
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._closing = ""
        self._over = False
        self._writing_since_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting_bytes(self) -> int:
        """About how much waits to be written, in bytes."""
        return self._outbox.waiting_bytes

    def send_rows(self, rows: Sequence[Row]) -> None:
        """Send rows for which there is credit; rows with a body go as frames, in their place."""
        if not self._over:
            self._outbox.put_rows(rows)
            self._wake_writer()

    def send_frame(self, frame: link_pb2.Frame) -> None:
        """Send a frame before any later row of its slots.

        Raises:
            FrameTooLarge: If no message can hold it; it would end the link for everybody.
        """
        if self._over:
            return
        size_bytes = frame.ByteSize()
        if size_bytes > FRAME_BYTES_MAX:
            raise FrameTooLarge(f"a frame of {size_bytes} bytes, of {FRAME_BYTES_MAX} at most")
        self._outbox.put_frame(frame, _slots_of(frame), size_bytes)
        self._wake_writer()

    def send_grants(self, grants: Sequence[Grant]) -> None:
        """Send grants; of those for one key and source only the last need go."""
        if not self._over:
            self._outbox.put_grants(grants)
            self._wake_writer()

    def ping_now(self) -> None:
        """Send news at once."""
        self.send_frame(link_pb2.Frame(ping=self._ping()))

    def close(self, reason: str) -> None:
        """End the link once what waits is written, or after `linger_s`; nothing more is received.

        `lost` follows, with this reason.
        """
        if self._over:
            return
        self._over = True
        self._closing = f"{LinkEnd.CLOSED}: {reason}"
        self._wake.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._policy.linger_s, self._linger_over)

    async def run(self) -> str:
        """Serve the link to its end and return the reason; `lost` has been called by then."""
        reason = str(LinkEnd.FAULT)
        self._timer = self._loop.call_later(self._policy.heartbeat_s, self._look)
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read_loop(), name=f"link-{self.id}-read")
                writer = tasks.create_task(self._write_loop(), name=f"link-{self.id}-write")
                reason = await self._ended
                reader.cancel()
                writer.cancel()
        except asyncio.CancelledError:
            reason = self._closing or str(LinkEnd.CANCELLED)
            raise
        finally:
            self._over = True
            self._timer.cancel()
            if self.attached:
                self._events.lost(self, reason)
        return reason

    def _end(self, end: LinkEnd, detail: str = "") -> None:
        """Begin the end; whatever comes first gives the reason."""
        self._over = True
        if not self._ended.done():
            self._ended.set_result(self._closing or (f"{end}: {detail}" if detail else str(end)))

    def _wake_writer(self) -> None:
        self._wake.set()
        if self._outbox.waiting_bytes > self._policy.outbox_bytes_max:
            self._end(LinkEnd.OUTBOX_FULL)

    async def _write_loop(self) -> None:
        try:
            if not await self._write(greet(self._hello())):
                return
            while True:
                while (batch := self._outbox.take()) is not None:
                    if not await self._write(encode(batch)):
                        return
                if self._closing:
                    break
                await self._wake.wait()
                self._wake.clear()
            if not await self._wire.finish():
                self._end(LinkEnd.CLOSED)
        except Broken as error:
            self._end(LinkEnd.BROKEN, str(error))

    async def _write(self, message: link_pb2.LinkMessage) -> bool:
        """Write a message, unless this process stood still so long that the peer gave it up."""
        if self._ended.done():
            return False
        now_s = self._clock()
        if self._liveness.stood_still(now_s):
            self._end(LinkEnd.STOOD_STILL)
            return False
        self._liveness.sent(now_s)
        self._writing_since_s = now_s
        await self._wire.write(message)
        self._writing_since_s = None
        return True

    async def _read_loop(self) -> None:
        try:
            while (message := await self._wire.read()) is not None:
                now_s = self._clock()
                if self._liveness.stood_still(now_s):
                    self._end(LinkEnd.STOOD_STILL)
                    return
                self._liveness.heard(now_s)
                if frames := self._take(message):
                    await self._give_way(frames, self._clock() - now_s)
            self._end(LinkEnd.PEER_CLOSED)
        except WireFault as error:
            self._end(LinkEnd.PROTOCOL, str(error))
        except Broken as error:
            self._end(LinkEnd.BROKEN, str(error))

    def _take(self, message: link_pb2.LinkMessage) -> int:
        """Tell the owner of a message; return how many frames it had, rows not counted."""
        if self._over:
            return 0
        if not self.attached:
            self.peer = read_greeting(message)
            self.attached = True
            self._events.attached(self)
            return 0
        frames = 0
        for received in decode(message):
            self._deliver(received)
            frames += len(received.frames)
        return frames

    async def _give_way(self, turns: int, took_s: float) -> None:
        """Let the loop turn once for each frame that was taken, within some times what they took.

        What is answered across several turns of the loop, an abort for one, would otherwise wait in
        each of them for the next message of a burst.
        """
        until_s = self._clock() + _WAY * took_s
        while turns and self._clock() < until_s:
            turns -= 1
            await asyncio.sleep(0)

    def _deliver(self, received: Received) -> None:
        if any(frame.HasField("hello") for frame in received.frames):
            raise WireFault("a second Hello")
        if not self._over:  # The step before may have closed the link.
            self._events.received(self, received)

    def _look(self) -> None:
        """The timer: give a sign of life, or give the peer up."""
        now_s = self._clock()
        stuck_s = 0.0 if self._writing_since_s is None else now_s - self._writing_since_s
        if self._liveness.stood_still(now_s):
            self._end(LinkEnd.STOOD_STILL)
        elif self._liveness.lost(now_s):
            self._end(LinkEnd.SILENT, f"nothing came for {self._policy.peer_lost_s:g} s")
        elif stuck_s >= self._policy.peer_lost_s:
            self._end(LinkEnd.SILENT, f"nothing was taken for {self._policy.peer_lost_s:g} s")
        else:
            # While a write is under way, more would only queue behind it.
            if self._writing_since_s is None and self._liveness.heartbeat_due(now_s):
                self.ping_now()
            delay_s = self._liveness.next_check_s(now_s) - now_s
            self._timer = self._loop.call_later(delay_s, self._look)

    def _linger_over(self) -> None:
        self._end(LinkEnd.CLOSED)


def _slots_of(frame: link_pb2.Frame) -> Sequence[int]:
    """The slots that a frame concerns; a frame of a request id or of the process has none."""
    kind = frame.WhichOneof("kind")
    if kind == "submit":
        return [role.slot for role in frame.submit.roles]
    slot: int = getattr(getattr(frame, kind), "slot", 0) if kind else 0
    return (slot,) if slot else ()
