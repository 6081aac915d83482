"""An orchestrator without a core: it attaches to a real worker and submits what a test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services.stage_worker.app import Program
from services.stage_worker.engines.base import ResumeContract
from services.stage_worker.settings import Settings
from stagemesh.api.stage.v1 import stage_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2, request_pb2
from stagemesh.control import Answer, Call
from stagemesh.ids import new_request_id
from stagemesh.link.core import Grant, Meter, Row, SlotMint, row_cost
from stagemesh.link.pump import Dialer, Link, LinkPolicy, Received
from stagemesh.media import Body, Modality, lane_of
from stagemesh.pipeline import Pool
from stagemesh.rpc import open_channel
from stagemesh.telemetry import Metrics
from stagemesh.wire import answer_from_proto, body_to_proto, call_to_proto
from tests.helpers.loopback import free_address

__all__ = ["STAGE", "Got", "WorkerPeer", "attach", "running_worker", "scripted"]

STAGE = 1
WAIT_S = 10.0


def scripted(text: str = "", /, **script: Any) -> str:
    """Make a user text with a script in it."""
    return f"{text}#synthetic {json.dumps(script)}"


class Got:
    """What came for one slot."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.terminal: link_pb2.Terminal | None = None
        self.unknown = False
        self.handed_back = False
        self.handles_lost: list[str] = []
        self.meter = Meter(64, 1 << 20)

    @property
    def text(self) -> str:
        """All text, joined."""
        return "".join(row.text for row in self.rows)

    @property
    def ends(self) -> set[int]:
        """The lanes that have ended."""
        return {row.lane for row in self.rows if row.end is not None}

    def lane(self, modality: Modality) -> list[Row]:
        """The rows of one lane."""
        return [row for row in self.rows if row.lane & 0xF == modality]


class WorkerPeer:
    """The orchestrator's end of one link; it grants credit as rows come, unless told not to."""

    def __init__(self, name: str = "orchestrator-0") -> None:
        self.name = name
        self.window_units = 64
        self.grants = True
        self.slots: dict[int, Got] = {}
        self.pings: list[link_pb2.Ping] = []
        self.frames: list[link_pb2.Frame] = []
        self.controlled: dict[int, Answer] = {}
        self.input_grants: dict[tuple[int, int], Grant] = {}
        self.losses: list[str] = []
        self.control_count = 0
        self.batches: list[int] = []
        self._link: Link | None = None
        self._mint = SlotMint()
        self._wanted: dict[int, set[int]] = {}
        self._changed = asyncio.Event()

    @property
    def link(self) -> Link:
        """The link; only while it is there."""
        assert self._link is not None
        return self._link

    @property
    def attached_to(self) -> link_pb2.Hello | None:
        """The worker's Hello, once the link is open."""
        return self._link.peer if self._link is not None else None

    def hello(self) -> link_pb2.Hello:
        """Say who calls."""
        return link_pb2.Hello(
            service=link_pb2.SERVICE_KIND_ORCHESTRATOR,
            id=self.name,
            incarnation=9,
            limits=link_pb2.LinkLimits(window_units=self.window_units, window_bytes=1 << 20),
        )

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        self._link = link
        self._changed.set()

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`."""
        self._link = None
        self.losses.append(reason)
        self._changed.set()

    def received(self, link: Link, received: Received) -> None:
        """Keep what came, and return credit for it."""
        if received.rows:
            self.batches.append(len(received.rows))
        grants: list[Grant] = []
        for row in received.rows:
            got = self.slots[row.slot]
            got.rows.append(row)
            totals = got.meter.took(*row_cost(row))
            if totals is not None and self.grants:
                grants.append(Grant(row.slot, 0, *totals))
        if grants:
            link.send_grants(grants)
        for frame in received.frames:
            self._take(frame)
        for grant in received.grants:
            self.input_grants[grant.slot, grant.source] = grant
        self._changed.set()

    async def until(self, holds: Callable[[], object], wait_s: float = WAIT_S) -> None:
        """Wait until something holds of what came.

        Raises:
            TimeoutError: If it does not come to hold.
        """
        async with asyncio.timeout(wait_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def until_ended(self, *slots: int, wait_s: float = WAIT_S) -> None:
        """Wait until each slot had a terminal or the ends of all its lanes."""
        await self.until(lambda: all(self._ended(slot) for slot in slots), wait_s)

    def submit(
        self,
        text: str = "",
        *,
        request_id: str = "",
        epoch: int = 1,
        attempt: int = 1,
        role: int = 0,
        stage: str = "thinker",
        modalities: Sequence[Modality] = (Modality.TEXT,),
        sources: Sequence[int] = (),
        bridge: str = "script",
        deadline_s: float = 30.0,
        media: Sequence[tuple[Modality, Body]] = (),
        slot: int = 0,
        token_ids: bool = False,
        contract: ResumeContract | None = None,
        resume: Sequence[link_pb2.LaneJournal] = (),
        adapter: str = "",
    ) -> int:
        """Submit one attempt of one role; give its slot."""
        slot = slot or self._mint.next()
        parts = [request_pb2.Part(text=text)] if text else []
        parts += [
            request_pb2.Part(
                media=request_pb2.MediaPart(
                    modality=int(modality),  # type: ignore[arg-type]
                    body=body_to_proto(body),
                    param="messages[0]",
                )
            )
            for modality, body in media
        ]
        message = request_pb2.Message(role="user", parts=parts)
        submit = link_pb2.Submit(
            request_id=request_id or new_request_id(),
            epoch=epoch,
            attempt=attempt,
            stage=STAGE,
            stage_name=stage,
            deadline_left_s=deadline_s,
            request=request_pb2.Request(
                model="m", messages=[message], choices=1, seed=7, adapter=adapter
            ),
            bridge=bridge,
            contract=link_pb2.ResumeContract.ValueType(contract or 0),
            resume=resume,
        )
        lanes = [lane_of(STAGE, role, modality) for modality in modalities]
        submit.roles.add(slot=slot, role=role, lanes=lanes, token_ids=token_ids)
        for lane in sources:
            submit.sources.add(lane=lane, stage="source", mode=link_pb2.EDGE_MODE_STREAM)
        self.slots[slot] = Got()
        self._wanted[slot] = set(lanes)
        self.link.send_frame(link_pb2.Frame(submit=submit))
        return slot

    async def control(self, call: Call, *, timeout_s: float = WAIT_S) -> Answer:
        """Make a control call, and wait for its answer."""
        number = self.control_count = self.control_count + 1
        control = call_to_proto(number, call, timeout_s)
        self.link.send_frame(link_pb2.Frame(control=control))
        await self.until(lambda: number in self.controlled)
        return self.controlled[number]

    def abort(self, slot: int) -> None:
        """Abort an attempt."""
        self.slots.setdefault(slot, Got())
        self.link.send_frame(link_pb2.Frame(abort=link_pb2.Abort(slot=slot, cause="test")))

    def grant_all(self, slot: int) -> None:
        """Give a slot more credit than it can use."""
        self.link.send_grants([Grant(slot, 0, 1 << 40, 1 << 40)])

    def terminal(self, slot: int) -> link_pb2.Terminal:
        """The terminal of a slot that has one."""
        found = self.slots[slot].terminal
        assert found is not None
        return found

    def _ended(self, slot: int) -> bool:
        got = self.slots[slot]
        return (
            got.terminal is not None
            or got.unknown
            or got.handed_back
            or got.ends == self._wanted[slot]
        )

    def _take(self, frame: link_pb2.Frame) -> None:
        self.frames.append(frame)
        match frame.WhichOneof("kind"):
            case "terminal":
                self.slots[frame.terminal.slot].terminal = frame.terminal
            case "unknown":
                self.slots[frame.unknown.slot].unknown = True
            case "hand_back":
                self.slots[frame.hand_back.slot].handed_back = True
            case "handle_lost":
                self.slots[frame.handle_lost.slot].handles_lost.append(frame.handle_lost.handle_id)
            case "ping":
                self.pings.append(frame.ping)
            case "controlled":
                number = frame.controlled.control_id
                assert number not in self.controlled, "answered twice"
                self.controlled[number] = answer_from_proto(frame.controlled)
            case _:
                pass


@asynccontextmanager
async def attach(address: str, peer: WorkerPeer | None = None) -> AsyncIterator[WorkerPeer]:
    """Keep a link to a worker; it is open when the body begins."""
    peer = peer or WorkerPeer()
    channel = open_channel(address)
    stub = stage_service_pb2_grpc.StageServiceStub(channel)
    dialer = Dialer(
        stub.Attach, hello=peer.hello, ping=link_pb2.Ping, events=peer, policy=LinkPolicy()
    )
    task = asyncio.create_task(dialer.run())
    try:
        await peer.until(lambda: peer.attached_to)
        yield peer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await channel.close()


@asynccontextmanager
async def running_worker(
    folder: Path,
    *,
    engine: str = "synthetic",
    gives: str = "text",
    slots: int = 64,
    contract: str = "",
    control: Mapping[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Program]:
    """Run a whole worker in this process; it is ready when the body begins, drained at its end."""
    settings = Settings(
        mesh=folder / "unread.yaml",
        pool="pool",
        replica_id=f"pool-{folder.name}",
        listen=free_address(),
        payload_directory=folder,
        **{"drain_s": 5.0, **more},
    )
    options = {"gives": gives, "slots": slots, "contract": contract, "control": control or {}}
    pool = Pool(name="pool", engine=engine, options=options)
    program = Program(settings, pool, registry=Metrics(process=False))
    task = asyncio.create_task(program.run())
    try:
        async with asyncio.timeout(WAIT_S):
            waiting = asyncio.create_task(program.ready.wait())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if task.done():
            task.result()
        yield program
    finally:
        program.stop()
        await task
