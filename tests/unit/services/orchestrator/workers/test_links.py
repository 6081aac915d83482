"""The link of one replica."""

import pytest

from services.orchestrator.core.effects import (
    AbortAttempt,
    AnswerUnknown,
    Effect,
    ReleaseHandles,
    RenewHandles,
    RoleOrder,
    SendGrants,
    SendRows,
    SubmitAttempts,
)
from services.orchestrator.core.events import (
    AttemptUnknown,
    Event,
    InputCreditGranted,
    ReplicaAttached,
    ReplicaLost,
    ReplicaReported,
    RowsArrived,
    Tick,
)
from services.orchestrator.translate import Submits
from services.orchestrator.workers import ReplicaLinks
from stagemesh.api.types.v1 import link_pb2, request_pb2
from stagemesh.link.core import Grant, Row
from stagemesh.link.pump import Received
from stagemesh.media import Modality, lane_of
from tests.helpers.orchestrator_mesh import MESH
from tests.helpers.recorded_link import RecordedLink
from tests.helpers.scripted_core import DriverLog, ScriptedCore, drive

LANE = lane_of(0, 0, Modality.TEXT)


def worker(replica_id: str = "thinker-0", pool: str = "thinker") -> link_pb2.Hello:
    return link_pb2.Hello(
        service=link_pb2.SERVICE_KIND_STAGE_WORKER,
        id=replica_id,
        incarnation=9,
        pid=77,
        state=link_pb2.PROCESS_STATE_READY,
        worker=link_pb2.WorkerCard(pool=pool),
    )


class Bench:
    """The links to `thinker-0`, one after the other."""

    def __init__(self) -> None:
        self.core, self.log = ScriptedCore(), DriverLog()
        self.driver = drive(self.core, self.log)
        self.gone = 0
        self.links = ReplicaLinks(
            self.driver,
            Submits(MESH),
            pool="thinker",
            replica_id="thinker-0",
            gone=self._count,
        )

    def attach(self, link: int = 5, hello: link_pb2.Hello | None = None) -> RecordedLink:
        """Let a replica answer the dial."""
        recorded = RecordedLink(link, hello or worker())
        self.links.attached(recorded)
        return recorded

    def perform(self, *effects: Effect) -> None:
        """Let the core order something."""
        self.core.answer = lambda event: list(effects)
        self.driver.post(Tick())

    def _count(self) -> None:
        self.gone += 1


def events_of(bench: Bench, kind: type[Event]) -> list[Event]:
    return [event for event in bench.core.events if isinstance(event, kind)]


async def test_the_replica_that_discovery_named_becomes_a_worker_link() -> None:
    bench = Bench()
    bench.attach()

    [event] = bench.core.events
    assert isinstance(event, ReplicaAttached)
    assert (event.link, event.pool, event.replica_id) == (5, "thinker", "thinker-0")
    assert bench.links.attached_now


@pytest.mark.parametrize(
    "hello", [worker("thinker-1"), worker(pool="talker"), link_pb2.Hello(id="thinker-0")]
)
async def test_somebody_else_at_its_address_is_turned_away(hello: link_pb2.Hello) -> None:
    bench = Bench()
    link = bench.attach(hello=hello)
    bench.links.lost(link, "closed")

    assert len(link.closed) == 1
    assert bench.core.events == []
    assert bench.gone == 1


async def test_rows_are_stepped_before_frames_before_grants() -> None:
    bench = Bench()
    link = bench.attach()
    row = Row(1, LANE, 0, 1, " w0")
    unknown = link_pb2.Frame(unknown=link_pb2.Unknown(slot=2))
    grant = Grant(1, LANE, 64, 64)
    bench.links.received(link, Received([row], [unknown], [grant]))

    assert [type(event) for event in bench.core.events[1:]] == [
        RowsArrived,
        AttemptUnknown,
        InputCreditGranted,
    ]
    assert bench.core.events[1] == RowsArrived(link=5, rows=[row])


async def test_the_load_of_a_ping_is_reported_and_shown() -> None:
    bench = Bench()
    link = bench.attach()
    ping = link_pb2.Ping(state=link_pb2.PROCESS_STATE_READY, load=link_pb2.Load(running=2))
    bench.links.received(link, Received([], [link_pb2.Frame(ping=ping)], []))

    assert len(events_of(bench, ReplicaReported)) == 1
    known = bench.links.known("127.0.0.1:7000")
    assert known.ping is not None
    assert known.ping.load.running == 2
    assert known.hello is not None
    assert known.hello.pid == 77


async def test_a_worker_that_breaks_the_protocol_loses_its_link() -> None:
    bench = Bench()
    link = bench.attach()
    bench.links.received(link, Received([], [link_pb2.Frame(open=link_pb2.Open())], []))

    assert len(link.closed) == 1


async def test_a_lost_link_is_told_and_leaves_nothing_to_show() -> None:
    bench = Bench()
    link = bench.attach()
    bench.links.lost(link, "broken")

    assert bench.core.events[-1] == ReplicaLost(link=5)
    assert bench.gone == 1
    assert not bench.links.attached_now
    assert bench.links.known("a").hello is None
    bench.perform(AbortAttempt(link=5, slot=1, cause="late"))
    assert link.sent == []


async def test_the_next_link_to_the_same_address_is_a_new_one() -> None:
    bench = Bench()
    bench.links.lost(bench.attach(5), "broken")
    bench.attach(6)

    assert [event.link for event in bench.core.events if isinstance(event, ReplicaAttached)] == [
        5,
        6,
    ]


async def test_orders_are_sent_as_frames_rows_and_grants_in_order() -> None:
    bench = Bench()
    link = bench.attach()
    row, grant = Row(1, LANE, 0, 1, " w0"), Grant(1, 0, 96, 4096)
    bench.perform(
        SubmitAttempts(
            link=5,
            request_id="req_1",
            epoch=1,
            attempt=1,
            model="talk",
            stage=1,
            roles=(RoleOrder(slot=1, role=0, companion="", lanes=(LANE,)),),
            sources=(),
            deadline_left_s=5.0,
            body=request_pb2.Request(model="talk"),
        ),
        SendRows(link=5, rows=[row]),
        SendGrants(link=5, grants=[grant]),
        AbortAttempt(link=5, slot=1, cause="client_closed"),
        ReleaseHandles(link=5, request_id="req_1", epoch=1),
        RenewHandles(link=5, request_id="req_1", epoch=1),
    )

    kinds = [
        sent.WhichOneof("kind") if isinstance(sent, link_pb2.Frame) else sent for sent in link.sent
    ]
    assert kinds == ["submit", [row], [grant], "abort", "release", "renew"]


async def test_an_effect_that_is_not_for_workers_is_our_bug() -> None:
    bench = Bench()
    bench.attach()
    bench.perform(AnswerUnknown(link=5, slot=1))

    assert [type(error) for error in bench.log.failed] == [TypeError]
