"""Orchestrator CPU per output: from a worker's message as bytes to a gateway's message as bytes.

Everything of the orchestrator is real (links, codec, driver, ledger, core, translation); only gRPC
is left out: both wires end in memory. Each message is fed when the one before has come out, so that
the price of waking up is paid for every message, as it is at a real step rate.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence

from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.driver import Driver, Ledger, Recorder
from services.orchestrator.servicer import GatewayLinks
from services.orchestrator.translate import Submits
from services.orchestrator.workers import ReplicaLinks
from stagemesh.api.types.v1 import link_pb2, media_pb2, request_pb2
from stagemesh.link.pump import PROTOCOL, Link, LinkPolicy
from stagemesh.media import Modality, lane_of
from stagemesh.telemetry import Metrics
from tests.helpers.orchestrator_mesh import MESH
from tests.perf.results import Row, median, print_rows

BUDGET_US = 8.0
BUDGET_BATCH = 32
GUARD_S = 60.0
LANE = lane_of(0, 0, Modality.TEXT)
PEER_WINDOW_UNITS = 1 << 30


class MemoryWire:
    """One end of a stream whose other end is the benchmark; messages cross it as bytes."""

    def __init__(self) -> None:
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self._news = asyncio.Event()
        self.written: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Let the orchestrator read a message."""
        self._incoming.put_nowait(data)

    async def until(self, count: int) -> None:
        """Wait until so many messages were written in all."""
        while len(self.written) < count:
            self._news.clear()
            await self._news.wait()

    async def read(self) -> link_pb2.LinkMessage:
        """Give the next message, decoded."""
        return link_pb2.LinkMessage.FromString(await self._incoming.get())

    async def write(self, message: link_pb2.LinkMessage) -> None:
        """Encode a message."""
        self.written.append(message.SerializeToString())
        self._news.set()

    async def finish(self) -> bool:
        """Close."""
        return False


class Bench:
    """One orchestrator between a gateway and a worker that are made of bytes."""

    def __init__(self) -> None:
        driver = Driver(
            Orchestrator(MESH),
            observer=Ledger(Metrics(process=False), ["echo"]),
            published=lambda effect: None,
            failed=_raise,
            recorder=Recorder(["echo"]),
        )
        self.gateway, self.worker = MemoryWire(), MemoryWire()
        links = ReplicaLinks(
            driver, Submits(MESH), pool="thinker", replica_id="t-0", gone=lambda: None
        )
        self._links = [
            Link(wire, hello=_hello, ping=link_pb2.Ping, events=events, policy=LinkPolicy())
            for wire, events in ((self.gateway, GatewayLinks(driver)), (self.worker, links))
        ]

    async def run(self, batch: int, messages: int) -> float:
        """Send `messages` messages of `batch` outputs through; give the CPU µs per output."""
        async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as tasks:
            serving = [tasks.create_task(link.run()) for link in self._links]
            slots = await self._open(batch)
            fed = [_outputs(slots, pos, last=pos == messages - 1) for pos in range(messages)]
            before = len(self.gateway.written)
            begun_s = time.process_time()
            for number, data in enumerate(fed, start=1):
                self.worker.feed(data)
                await self.gateway.until(before + number)
            used_s = time.process_time() - begun_s
            self._check(self.gateway.written[before:], batch * messages)
            for task in serving:
                task.cancel()
        return used_s * 1e6 / (batch * messages)

    async def _open(self, batch: int) -> list[int]:
        """Attach both peers and open one request for each output of a batch."""
        self.worker.feed(_greeting(_worker_hello()))
        await self.worker.until(1)
        self.gateway.feed(_greeting(_gateway_hello()))
        await self.gateway.until(1)
        opens = link_pb2.LinkMessage(
            frames=[link_pb2.Frame(open=_open_frame(slot)) for slot in range(1, batch + 1)]
        )
        self.gateway.feed(opens.SerializeToString())
        slots: list[int] = []
        seen = 1
        while len(slots) < batch:
            await self.worker.until(seen + 1)
            for data in self.worker.written[seen:]:
                message = link_pb2.LinkMessage.FromString(data)
                slots += [
                    role.slot
                    for frame in message.frames
                    if frame.HasField("submit")
                    for role in frame.submit.roles
                ]
            seen = len(self.worker.written)
        return slots

    def _check(self, written: Sequence[bytes], expected: int) -> None:
        messages = [link_pb2.LinkMessage.FromString(data) for data in written]
        came = sum(len(message.outputs.slot) for message in messages)
        if came != expected:
            raise AssertionError(f"{came} outputs came out of {expected}")


def _raise(error: Exception) -> None:
    raise error


def _greeting(hello: link_pb2.Hello) -> bytes:
    hello.protocol = PROTOCOL
    frame = link_pb2.Frame(hello=hello)
    return link_pb2.LinkMessage(frames=[frame]).SerializeToString()


def _hello() -> link_pb2.Hello:
    return link_pb2.Hello(service=link_pb2.SERVICE_KIND_ORCHESTRATOR, id="o-0", incarnation=1)


def _gateway_hello() -> link_pb2.Hello:
    limits = link_pb2.LinkLimits(window_units=PEER_WINDOW_UNITS, window_bytes=1 << 40)
    return link_pb2.Hello(
        service=link_pb2.SERVICE_KIND_GATEWAY, id="g-0", incarnation=2, limits=limits
    )


def _worker_hello() -> link_pb2.Hello:
    return link_pb2.Hello(
        service=link_pb2.SERVICE_KIND_STAGE_WORKER,
        id="t-0",
        incarnation=3,
        state=link_pb2.PROCESS_STATE_READY,
        limits=link_pb2.LinkLimits(window_units=64, window_bytes=1 << 20),
        worker=link_pb2.WorkerCard(
            pool="thinker",
            engine="synthetic",
            capabilities=link_pb2.Capabilities(
                input_modalities=[media_pb2.MODALITY_TEXT],
                output_modalities=[media_pb2.MODALITY_TEXT],
                slots=4096,
            ),
        ),
    )


def _open_frame(slot: int) -> link_pb2.Open:
    message = request_pb2.Message(role="user", parts=[request_pb2.Part(text="hello")])
    return link_pb2.Open(
        slot=slot,
        request_id=f"req_{slot}",
        epoch=1,
        request=request_pb2.Request(model="echo", messages=[message]),
    )


def _outputs(slots: Sequence[int], pos: int, *, last: bool) -> bytes:
    """Make the message of one engine step: one token, with its id, for each attempt."""
    outputs = link_pb2.Outputs(
        slot=slots,
        lane=[LANE] * len(slots),
        pos=[pos] * len(slots),
        units=[1] * len(slots),
        text=[f" w{pos}"] * len(slots),
        token_ids=[pos] * len(slots),
        token_ids_len=[1] * len(slots),
    )
    if last:
        for row in range(len(slots)):
            outputs.ends.add(row=row).end.finish_reason = 1  # type: ignore[assignment]
    return link_pb2.LinkMessage(outputs=outputs).SerializeToString()


def main() -> None:
    """Measure batches of 1, 32 and 256; only 32 has a budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rows = []
    for batch, messages in ((1, 2000), (32, 400), (256, 100)):
        count = messages // 4 if quick else messages
        runs = [asyncio.run(_run(batch, count)) for _ in range(3 if quick else 5)]
        budgeted = batch == BUDGET_BATCH
        rows.append(
            Row(
                name=f"orchestrator CPU per output, decode to encode, batches of {batch}",
                value=median(runs),
                unit="µs",
                budget=f"≤ {BUDGET_US:g}" if budgeted else "",
                met=median(runs) <= BUDGET_US if budgeted else None,
                runs=runs,
            )
        )
    print_rows(rows)


async def _run(batch: int, messages: int) -> float:
    return await Bench().run(batch, messages)


if __name__ == "__main__":
    main()
