"""An orchestrator that plays scripts, on a real link: what the gateway's contract tests talk to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from stagemesh.api.orchestrator.v1 import gateway_link_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.ids import new_incarnation
from stagemesh.link.core import Journal, Placed, Row, Sender, join_journals
from stagemesh.link.pump import (
    Link,
    LinkPolicy,
    Received,
    journal_from_proto,
    placed_to_proto,
    serve_link,
)
from stagemesh.media import Body, Modality, Request, lane_of
from stagemesh.outcome import (
    COMPLETED,
    End,
    ErrorInfo,
    FinishReason,
    Outcome,
    Terminal,
    Usage,
    error_for,
)
from stagemesh.rpc import RunningServer, start_server
from stagemesh.wire import request_from_proto, terminal_to_proto

__all__ = ["FakeOrchestrator", "FakeRequest", "Script", "orchestrator_at"]


class FakeRequest:
    """One request that the gateway opened; a script answers it."""

    def __init__(self, link: Link, opened: link_pb2.Open, journal: Journal) -> None:
        self.slot = opened.slot
        self.request_id = opened.request_id
        self.epoch = opened.epoch
        self.journal = journal
        self.deadline_left_s = opened.deadline_left_s
        self.detach_s = opened.detach_s
        self.owner_since = opened.owner_since
        self.streamed = opened.streamed
        self.request: Request = request_from_proto(opened.request)
        self.aborted = asyncio.Event()
        self.detached = asyncio.Event()
        """Its gateway has given it up, and another one may come."""
        self.sent_units = 0
        self.granted_units = 0
        """By the last grant; 0 before the first."""
        self.lost_handles: asyncio.Queue[str] = asyncio.Queue()
        self._link = link
        self._sender = Sender(link.peer.limits.window_units, link.peer.limits.window_bytes)
        self._positions = {lane.lane: lane.next for lane in journal.lanes}
        self._room = asyncio.Event()

    @property
    def held_units(self) -> int:
        """How many units wait for credit."""
        return self._sender.held_units

    def next(self, modality: Modality = Modality.TEXT, *, choice: int = 0) -> int:
        """Give the next position of a lane."""
        return self._positions.get(_lane(modality, choice), 0)

    def rewind(self, pos: int, modality: Modality = Modality.TEXT, *, choice: int = 0) -> None:
        """Set the next position of a lane back."""
        self._positions[_lane(modality, choice)] = pos

    def text(
        self, text: str, *, choice: int = 0, units: int = 1, ids: list[int] | None = None
    ) -> None:
        """Send some text, as soon as there is credit."""
        self._offer(self._row(Modality.TEXT, choice, units, text=text, ids=ids))

    def hidden(self, text: str, *, stage: int = 7, ids: list[int] | None = None) -> None:
        """Mirror one token that the client is not given."""
        lane = lane_of(stage, 0, Modality.TEXT)
        pos = self._positions.get(lane, 0)
        self._positions[lane] = pos + 1
        self.raw(Row(self.slot, lane, pos, 1, text, ids, visible=False))

    def audio(self, data: bytes, *, choice: int = 0, rate_hz: int = 24_000) -> None:
        """Send some samples."""
        body = Body(inline=data, media_type="audio/pcm", sample_rate_hz=rate_hz)
        self._offer(self._row(Modality.AUDIO, choice, len(data) // 2, body=body))

    def image(self, body: Body, *, choice: int = 0) -> None:
        """Send an image."""
        self._offer(self._row(Modality.IMAGE, choice, 1, body=body))

    def end(
        self,
        modality: Modality = Modality.TEXT,
        *,
        choice: int = 0,
        reason: FinishReason = FinishReason.STOP,
    ) -> None:
        """End a lane."""
        row = self._row(modality, choice, 0)
        row.end = End(finish_reason=reason)
        self._offer(row)

    def complete(self, usage: Usage | None = None) -> None:
        """Send the terminal of a success."""
        self.terminal(Terminal(outcome=COMPLETED.outcome, usage=usage or Usage()))

    def fail(self, info: ErrorInfo, outcome: Outcome = Outcome.FAILED) -> None:
        """Send the terminal of a failure."""
        self.terminal(Terminal(outcome=outcome, error=info))

    def terminal(self, terminal: Terminal) -> None:
        """Send a terminal."""
        frame = link_pb2.Frame(terminal=terminal_to_proto(self.slot, terminal))
        self._link.send_frame(frame)

    def placed(self, placed: Placed) -> None:
        """Tell where a stage was given."""
        self.frame(link_pb2.Frame(placed=placed_to_proto(placed, slot=self.slot)))

    def reset(self, *stages: int) -> None:
        """Have the lanes of stages dropped, and begin them anew."""
        self._positions = {
            lane: pos for lane, pos in self._positions.items() if lane >> 20 not in stages
        }
        self.frame(link_pb2.Frame(reset=link_pb2.Reset(slot=self.slot, stages=stages)))

    def hand_back(self) -> None:
        """Give the request up in good order."""
        self.frame(link_pb2.Frame(hand_back=link_pb2.HandBack(slot=self.slot)))

    def unknown(self) -> None:
        """Say that there is no such request."""
        self.frame(link_pb2.Frame(unknown=link_pb2.Unknown(slot=self.slot)))

    def cut(self) -> None:
        """End the link that the request came on, with all others on it."""
        self._link.close("test")

    def frame(self, frame: link_pb2.Frame) -> None:
        """Send a frame as it is."""
        self._link.send_frame(frame)

    def raw(self, row: Row) -> None:
        """Send a row as it is, without credit."""
        self._link.send_rows([row])

    async def confirmed(self, units: int) -> None:
        """Wait until a grant is for so many units beyond the first window."""
        while self.granted_units - self._link.peer.limits.window_units < units:
            self._room.clear()
            await self._room.wait()

    async def settled(self) -> None:
        """Wait until nothing waits for credit."""
        while self._sender.held_units or self._sender.held_bytes:
            self._room.clear()
            await self._room.wait()

    def granted(self, units: int, size: int) -> None:
        """Take a grant."""
        self.granted_units = units
        self._send(self._sender.grant(units, size))
        self._room.set()

    def _row(self, modality: Modality, choice: int, units: int, **fields: Any) -> Row:
        lane = _lane(modality, choice)
        pos = self._positions.get(lane, 0)
        self._positions[lane] = pos + units
        return Row(self.slot, lane, pos, units, **fields)

    def _offer(self, row: Row) -> None:
        self._send(self._sender.offer(row))

    def _send(self, rows: Sequence[Row]) -> None:
        self.sent_units += sum(row.units for row in rows)
        if rows:
            self._link.send_rows(rows)


def _lane(modality: Modality, choice: int) -> int:
    return lane_of(0 if modality is Modality.TEXT else 1, choice, modality)


Script = Callable[[FakeRequest], Awaitable[None]]


async def say_hello(asked: FakeRequest) -> None:
    """Answer with three tokens, whatever was asked."""
    for choice in range(asked.request.choices):
        for token in ("Hello", ",", " world"):
            asked.text(token, choice=choice)
        asked.end(choice=choice)
    asked.complete(Usage(prompt_tokens=5, completion_tokens=3 * asked.request.choices))


class FakeOrchestrator(gateway_link_service_pb2_grpc.GatewayLinkServiceServicer):
    """Serves `GatewayLinkService`, and answers every request by `script`."""

    def __init__(self, models: Sequence[str] = ("echo",), script: Script = say_hello) -> None:
        self.models = list(models)
        self.unready: set[str] = set()
        """Those of them that could not be served now."""
        self.script = script
        self.id = "orchestrator-0"
        self.incarnation = new_incarnation()
        self.revision = "r1"
        self.deadline_s = 0.0
        """Of its pipelines."""
        self.state = link_pb2.PROCESS_STATE_READY
        self.links: dict[int, Link] = {}
        self.requests: list[FakeRequest] = []
        self.fences: list[int] = []
        """The slots of fences that end what has them."""
        self.handles_lost: list[str] = []
        self.heard = asyncio.Event()
        """Set whenever something came that is not credit."""
        self.parts = 0
        """How many parts journals came in, beside those in an Open."""
        self._open: dict[tuple[int, int], FakeRequest] = {}
        self._parts: dict[tuple[int, int], tuple[link_pb2.Open, list[Journal]]] = {}
        self._scripts: set[asyncio.Task[None]] = set()
        self._server: RunningServer | None = None

    async def Attach(self, request_iterator: Any, context: aio.ServicerContext[Any, Any]) -> None:  # type: ignore[override]  # noqa: N802
        """Serve a link."""
        await serve_link(
            context, hello=self._hello, ping=self._ping, events=self, policy=LinkPolicy()
        )

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        self.links[link.id] = link
        self.heard.set()

    def received(self, link: Link, received: Received) -> None:
        """See `LinkEvents`."""
        for frame in received.frames:
            match frame.WhichOneof("kind"):
                case "open":
                    self._opened(link, frame.open)
                case "journal_part":
                    self._parts[link.id, frame.journal_part.slot][1].append(
                        journal_from_proto(frame.journal_part.journal)
                    )
                case "go":
                    self._begin(link, *self._parts.pop((link.id, frame.go.slot)))
                case "abort":
                    self._aborted(link, frame.abort.slot)
                case "fence":
                    self._fenced(link, frame.fence)
                case "handle_lost":
                    self._handle_lost(link, frame.handle_lost)
            self.heard.set()
        for grant in received.grants:
            asked = self._open.get((link.id, grant.slot))
            if asked is not None:
                asked.granted(grant.units, grant.bytes)

    def cut(self) -> None:
        """End all links, which are then dialled again."""
        for link in list(self.links.values()):
            link.close("test")

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`."""
        self.links.pop(link.id, None)
        self.heard.set()

    def news(self) -> None:
        """Tell every gateway the state and the models."""
        for link in self.links.values():
            link.ping_now()

    def go_away(self) -> None:
        """Tell every gateway to bring nothing new."""
        self.state = link_pb2.PROCESS_STATE_DRAINING
        frame = link_pb2.Frame(go_away=link_pb2.GoAway(reason="drain", drain_s=1.0))
        for link in self.links.values():
            link.send_frame(frame)

    async def until(self, true: Callable[[], bool], *, within_s: float = 5.0) -> None:
        """Wait until something that came makes a condition true."""
        async with asyncio.timeout(within_s):
            while not true():
                self.heard.clear()
                await self.heard.wait()

    async def start(self, address: str) -> None:
        """Listen."""
        self._server = await start_server(
            address,
            register=lambda server: (
                gateway_link_service_pb2_grpc.add_GatewayLinkServiceServicer_to_server(self, server)
            ),
            services=(),
        )

    async def stop(self) -> None:
        """Break every link, as a process that dies does; `start` brings it back."""
        self.incarnation = new_incarnation()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)
        for task in self._scripts:
            task.cancel()
        if self._scripts:
            await asyncio.wait(self._scripts)

    def _opened(self, link: Link, opened: link_pb2.Open) -> None:
        if opened.more:
            self._parts[link.id, opened.slot] = opened, []
        else:
            self._begin(link, opened, [journal_from_proto(opened.journal)])

    def _begin(self, link: Link, opened: link_pb2.Open, parts: list[Journal]) -> None:
        self.parts += len(parts) if opened.more else 0
        asked = FakeRequest(link, opened, join_journals(parts))
        others = [one for one in self.requests if one.request_id == asked.request_id]
        if any(other.epoch >= asked.epoch for other in others):
            asked.fail(error_for("conflict"), Outcome.REJECTED)
            return
        if asked.detach_s:
            # Whoever had it is told.
            for older in others:
                if not older.detached.is_set():
                    older.unknown()
        self.requests.append(asked)
        self._open[link.id, opened.slot] = asked
        task = asyncio.create_task(self._play(asked))
        self._scripts.add(task)
        task.add_done_callback(self._scripts.discard)

    def _aborted(self, link: Link, slot: int) -> None:
        asked = self._open.get((link.id, slot))
        if asked is not None:
            asked.aborted.set()

    def _fenced(self, link: Link, fence: link_pb2.Fence) -> None:
        asked = self._open.get((link.id, fence.slot))
        if not fence.detach:
            self.fences.append(fence.slot)
        elif asked is not None:
            asked.detached.set()

    def _handle_lost(self, link: Link, lost: link_pb2.HandleLost) -> None:
        self.handles_lost.append(lost.handle_id)
        asked = self._open.get((link.id, lost.slot))
        if asked is not None:
            asked.lost_handles.put_nowait(lost.handle_id)

    async def _play(self, asked: FakeRequest) -> None:
        await self.script(asked)

    def _hello(self) -> link_pb2.Hello:
        return link_pb2.Hello(
            service=link_pb2.SERVICE_KIND_ORCHESTRATOR,
            id=self.id,
            incarnation=self.incarnation,
            version="test",
            state=self.state,
            pipelines=self._pipelines(),
        )

    def _ping(self) -> link_pb2.Ping:
        return link_pb2.Ping(state=self.state, pipelines=self._pipelines(), has_pipelines=True)

    def _pipelines(self) -> list[link_pb2.PublishedPipeline]:
        return [
            link_pb2.PublishedPipeline(
                model=model,
                revision=self.revision,
                ready=model not in self.unready,
                deadline_s=self.deadline_s,
            )
            for model in self.models
        ]


@asynccontextmanager
async def orchestrator_at(
    address: str, orchestrator: FakeOrchestrator
) -> AsyncIterator[FakeOrchestrator]:
    """Serve a fake orchestrator for as long as the block lasts."""
    await orchestrator.start(address)
    try:
        yield orchestrator
    finally:
        await orchestrator.stop()
