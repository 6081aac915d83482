"""Views as answers."""

from services.orchestrator.core.replicas import WorkerState
from services.orchestrator.core.views import ReplicaView
from services.orchestrator.translate import (
    KnownReplica,
    replica_to_proto,
)
from stagemesh.api.types.v1 import link_pb2

HELLO = link_pb2.Hello(
    id="t-0",
    incarnation=5,
    pid=42,
    version="0.1.0",
    state=link_pb2.PROCESS_STATE_READY,
    worker=link_pb2.WorkerCard(pool="thinker", engine="synthetic"),
)


def view(state: WorkerState) -> ReplicaView:
    return ReplicaView(
        link=3,
        pool="thinker",
        replica_id="t-0",
        incarnation=5,
        state=state,
        usable=True,
        listed=True,
        slots=4,
        in_flight=2,
    )


def test_a_replica_that_was_never_reached_has_an_address_and_nothing_else() -> None:
    replica = replica_to_proto(
        KnownReplica(pool="thinker", replica_id="t-0", address="127.0.0.1:7000"), None
    )

    assert (replica.pool, replica.replica_id, replica.address) == (
        "thinker",
        "t-0",
        "127.0.0.1:7000",
    )
    assert not replica.connected
    assert not replica.HasField("load")
    assert replica.state == link_pb2.PROCESS_STATE_UNSPECIFIED


def test_the_cores_judgement_of_a_replica_is_above_what_it_said_at_first() -> None:
    known = KnownReplica(
        pool="thinker",
        replica_id="t-0",
        address="a",
        link=3,
        hello=HELLO,
        ping=link_pb2.Ping(load=link_pb2.Load(running=2, slots_free=1)),
    )
    replica = replica_to_proto(known, view(WorkerState.STALLED))

    assert replica.connected
    assert (replica.pid, replica.incarnation, replica.worker.engine) == (42, 5, "synthetic")
    assert replica.version == "0.1.0"
    assert (replica.load.running, replica.load.slots_free) == (2, 1)
    assert (replica.state, replica.inflight) == (link_pb2.PROCESS_STATE_STALLED, 2)
