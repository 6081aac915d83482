"""What the core and the links show of replicas, as answers to operators."""

import msgspec

from services.orchestrator.core.views import ReplicaView
from stagemesh.api.admin.v1 import admin_service_pb2
from stagemesh.api.types.v1 import control_pb2, link_pb2

__all__ = ["KnownReplica", "replica_to_proto"]


class KnownReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica as discovery and its link tell of it; no link, no Hello and no news."""

    pool: str
    replica_id: str
    address: str
    link: int = 0
    hello: link_pb2.Hello | None = None
    ping: link_pb2.Ping | None = None

    @property
    def gate(self) -> control_pb2.Gate | None:
        """What operators have closed there, by its last word; None where there is no link."""
        if self.ping is not None and self.ping.HasField("gate"):
            return self.ping.gate
        return None if self.hello is None else self.hello.gate


def replica_to_proto(known: KnownReplica, view: ReplicaView | None) -> admin_service_pb2.Replica:
    """Make what operators see of a replica; the core's view says what may be done with it."""
    replica = admin_service_pb2.Replica(
        pool=known.pool,
        replica_id=known.replica_id,
        address=known.address,
        connected=known.hello is not None,
        load=None if known.ping is None else known.ping.load,
        gate=known.gate,
    )
    if known.hello is not None:
        replica.incarnation = known.hello.incarnation
        replica.pid = known.hello.pid
        replica.version = known.hello.version
        replica.state = known.hello.state
        replica.worker.CopyFrom(known.hello.worker)
    if view is not None:
        replica.state = link_pb2.ProcessState.ValueType(view.state)
        replica.inflight = view.in_flight
    return replica
