"""What the core and the links show of replicas, as answers to operators."""

import msgspec

from services.orchestrator.core.views import ReplicaView
from stagemesh.api.admin.v1 import admin_service_pb2
from stagemesh.api.types.v1 import link_pb2

__all__ = ["KnownReplica", "replica_to_proto"]


class KnownReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica as discovery and its link tell of it; no link, no Hello and no load."""

    pool: str
    replica_id: str
    address: str
    link: int = 0
    hello: link_pb2.Hello | None = None
    load: link_pb2.Load | None = None


def replica_to_proto(known: KnownReplica, view: ReplicaView | None) -> admin_service_pb2.Replica:
    """Make what operators see of a replica; the core's view says what may be done with it."""
    replica = admin_service_pb2.Replica(
        pool=known.pool,
        replica_id=known.replica_id,
        address=known.address,
        connected=known.hello is not None,
        load=known.load,
    )
    if known.hello is not None:
        replica.incarnation = known.hello.incarnation
        replica.pid = known.hello.pid
        replica.state = known.hello.state
        replica.worker.CopyFrom(known.hello.worker)
    if view is not None:
        replica.state = link_pb2.ProcessState.ValueType(view.state)
        replica.inflight = view.in_flight
    return replica
