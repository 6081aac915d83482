"""The chain over links: every process has one link to the next."""

from typing import Any

from stagemesh.api.orchestrator.v1 import gateway_link_service_pb2_grpc
from stagemesh.api.stage.v1 import stage_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import Cursor, Grant, Meter, Row, Sender, SlotMint, Step, row_cost
from stagemesh.link.pump import Link, LinkPolicy, Received, serve_link
from tests.perf.chain_engine import LANE, WINDOW_BYTES, WINDOW_UNITS, WORDS, Streams

__all__ = ["POLICY", "LinkRelay", "LinkSink", "LinkWorker", "hello"]

POLICY = LinkPolicy()


def hello(service: link_pb2.ServiceKind.ValueType) -> link_pb2.Hello:
    """A Hello of this process."""
    limits = link_pb2.LinkLimits(window_units=WINDOW_UNITS, window_bytes=WINDOW_BYTES)
    return link_pb2.Hello(service=service, id="bench", incarnation=1, limits=limits)


class LinkWorker(stage_service_pb2_grpc.StageServiceServicer):
    """Runs a stream for each attempt that is submitted."""

    def __init__(self, streams: Streams, words: list[str]) -> None:
        self._streams = streams
        self._words = words
        self._open: dict[int, tuple[Sender, list[int]]] = {}
        self._link: Link | None = None
        streams.step = self._step

    async def Attach(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override] # noqa: N802
        """Serve the relay's link."""
        await serve_link(
            context,
            hello=lambda: hello(link_pb2.SERVICE_KIND_STAGE_WORKER),
            ping=link_pb2.Ping,
            events=self,
            policy=POLICY,
        )

    async def Describe(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Not measured."""
        raise AssertionError

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        self._link = link

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`."""
        self._open.clear()

    def received(self, link: Link, received: Received) -> None:
        """See `LinkEvents`."""
        for frame in received.frames:
            for role in frame.submit.roles:
                self._open[role.slot] = (Sender(WINDOW_UNITS, WINDOW_BYTES), [0])
        ready: list[Row] = []
        for grant in received.grants:
            ready += self._open[grant.slot][0].grant(grant.units, grant.bytes)
        if ready:
            link.send_rows(ready)
        self._streams.wake.set()

    def _step(self) -> bool:
        ready: list[Row] = []
        for slot, (sender, made) in self._open.items():
            if sender.held_units == 0:
                pos = made[0]
                made[0] = pos + 1
                token = pos % WORDS
                ready += sender.offer(Row(slot, LANE, pos, 1, self._words[token], [token]))
        if ready and self._link is not None:
            self._link.send_rows(ready)
        return bool(ready)


class LinkRelay(gateway_link_service_pb2_grpc.GatewayLinkServiceServicer):
    """Gives each request of the sink to the worker, checks every row, passes credit through."""

    def __init__(self) -> None:
        self._down: dict[int, tuple[int, Cursor]] = {}
        self._up: dict[int, int] = {}
        self._mint = SlotMint()
        self._worker: Link | None = None
        self._client: Link | None = None
        self.events = RelayWorkerEvents(self)

    async def Attach(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override] # noqa: N802
        """Serve the sink's link."""
        await serve_link(
            context,
            hello=lambda: hello(link_pb2.SERVICE_KIND_ORCHESTRATOR),
            ping=link_pb2.Ping,
            events=self,
            policy=POLICY,
        )

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        self._client = link

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`."""
        self._client = None

    def received(self, link: Link, received: Received) -> None:
        """Requests and credit from the sink."""
        worker = self._worker
        if worker is None:
            raise AssertionError("the sink came before the worker")
        for frame in received.frames:
            if frame.HasField("open"):
                slot = self._mint.next()
                self._down[slot] = (frame.open.slot, Cursor())
                self._up[frame.open.slot] = slot
                role = link_pb2.RoleSpec(slot=slot)
                worker.send_frame(link_pb2.Frame(submit=link_pb2.Submit(roles=[role])))
        if received.grants:
            for grant in received.grants:
                grant.slot = self._up[grant.slot]
            worker.send_grants(received.grants)

    def worker_attached(self, link: Link) -> None:
        """The worker is there."""
        self._worker = link

    def rows_arrived(self, rows: list[Row]) -> None:
        """Rows from the worker."""
        down = self._down
        for row in rows:
            slot, cursor = down[row.slot]
            if cursor.check(row) is not Step.ACCEPT:
                raise AssertionError(f"{row} after {cursor.next}")
            row.slot = slot
        if self._client is not None:
            self._client.send_rows(rows)


class RelayWorkerEvents:
    """The relay's ear at the worker's link."""

    def __init__(self, relay: LinkRelay) -> None:
        self._relay = relay

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        self._relay.worker_attached(link)

    def received(self, link: Link, received: Received) -> None:
        """See `LinkEvents`."""
        if received.rows:
            self._relay.rows_arrived(received.rows)

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`."""


class LinkSink:
    """Opens requests, checks and counts what comes, and grants as it takes."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._keys: dict[int, tuple[Cursor, Meter]] = {}
        self.tokens = 0
        self.messages = 0

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        for slot in range(1, self._streams + 1):
            self._keys[slot] = (Cursor(), Meter(WINDOW_UNITS, WINDOW_BYTES))
            link.send_frame(link_pb2.Frame(open=link_pb2.Open(slot=slot)))

    def received(self, link: Link, received: Received) -> None:
        """See `LinkEvents`."""
        grants = []
        for row in received.rows:
            cursor, meter = self._keys[row.slot]
            if cursor.check(row) is not Step.ACCEPT:
                raise AssertionError(f"{row} after {cursor.next}")
            self.tokens += row.units
            if totals := meter.took(*row_cost(row)):
                grants.append(Grant(row.slot, 0, *totals))
        self.messages += 1
        if grants:
            link.send_grants(grants)

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`."""
