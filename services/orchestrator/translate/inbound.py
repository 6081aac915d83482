"""Frames of gateways and workers, as events. Rows and grants need none: links speak them."""

from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.events import (
    AbortAsked,
    AttemptEnded,
    AttemptUnknown,
    ClientAttached,
    ControlDone,
    Event,
    Fenced,
    FenceRaised,
    HandedBack,
    HandleLost,
    Interacted,
    Opened,
    ReplicaAttached,
    ReplicaReported,
)
from services.orchestrator.core.replicas import LoadReport, WorkerCard, WorkerState
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import Journal, Row
from stagemesh.outcome import error_for
from stagemesh.wire import (
    answer_from_proto,
    capabilities_from_proto,
    error_from_proto,
    gate_from_proto,
    request_from_proto,
    terminal_from_proto,
)

__all__ = [
    "client_attached",
    "gateway_event",
    "opened",
    "replica_attached",
    "worker_event",
]


def client_attached(link: int, hello: link_pb2.Hello) -> ClientAttached:
    """Read what a gateway said of itself.

    Raises:
        MeshError: If it is no gateway.
    """
    if hello.service != link_pb2.SERVICE_KIND_GATEWAY:
        raise _broken_protocol("This port takes gateways only.")
    return ClientAttached(
        link=link,
        window_units=hello.limits.window_units,
        window_bytes=hello.limits.window_bytes,
        mirrors=True,
    )


def opened(link: int, frame: link_pb2.Open, journal: Journal, inputs: list[Row]) -> Opened:
    """Read a request that a gateway gives; its journal and its input may have come apart from it.

    Raises:
        MeshError: If the request names what this build does not know; nobody else is at fault.
    """
    return Opened(
        link=link,
        slot=frame.slot,
        request_id=frame.request_id,
        epoch=frame.epoch,
        deadline_left_s=frame.deadline_left_s,
        request=request_from_proto(frame.request),
        body=frame.request,
        journal=journal,
        streamed=frame.streamed,
        inputs=inputs,
        detach_s=frame.detach_s,
        owner_since=frame.owner_since,
    )


def gateway_event(link: int, frame: link_pb2.Frame) -> Event | None:
    """Read any other frame of a gateway; None where the core need not know.

    Raises:
        MeshError: If a gateway must not send such a frame.
    """
    match frame.WhichOneof("kind"):
        case "abort":
            return AbortAsked(
                link=link,
                slot=frame.abort.slot,
                cause=frame.abort.cause,
                partials=frame.abort.partials,
            )
        case "handle_lost":
            return _handle_lost(link, frame.handle_lost)
        case "fence" if frame.fence.slot:  # The gateway has no such request, or not from here.
            return FenceRaised(
                link=link,
                slot=frame.fence.slot,
                epoch=frame.fence.epoch,
                detach=frame.fence.detach,
            )
        case "fence" | "go_away" | "ping" | None:  # None is a kind that only a newer peer knows.
            return None
        case other:
            raise _broken_protocol(f"A gateway sent a frame of kind {other}.")


def replica_attached(link: int, hello: link_pb2.Hello) -> ReplicaAttached:
    """Read what a worker said of itself.

    Raises:
        MeshError: If it is no stage worker, or names a state or a modality that does not exist.
    """
    if hello.service != link_pb2.SERVICE_KIND_STAGE_WORKER:
        raise _broken_protocol(f"{hello.id} is no stage worker.")
    capabilities = capabilities_from_proto(hello.worker.capabilities)
    return ReplicaAttached(
        link=link,
        pool=hello.worker.pool,
        replica_id=hello.id,
        incarnation=hello.incarnation,
        card=WorkerCard(
            engine=hello.worker.engine,
            model=hello.worker.model,
            input_modalities=capabilities.input_modalities,
            output_modalities=capabilities.output_modalities,
            slots=capabilities.slots,
            context_tokens_max=capabilities.context_tokens_max,
            interactions=capabilities.interactions,
            resume_contract=_contract(capabilities.resume_contract),
            deterministic=capabilities.deterministic,
            params=capabilities.params,
            control=capabilities.control,
        ),
        state=_state(hello.state),
        window_units=hello.limits.window_units,
        window_bytes=hello.limits.window_bytes,
        gate=gate_from_proto(hello.gate),
    )


def worker_event(link: int, frame: link_pb2.Frame) -> Event | None:
    """Read a frame of a worker; None where the core need not know.

    Raises:
        MeshError: If a worker must not send such a frame.
    """
    match frame.WhichOneof("kind"):
        case "ping":
            return _reported(link, frame.ping)
        case "go_away":
            return ReplicaReported(link=link, state=WorkerState.DRAINING, load=LoadReport())
        case "controlled":
            controlled = frame.controlled
            return ControlDone(
                link=link,
                control_id=controlled.control_id,
                answer=answer_from_proto(controlled),
            )
        case "handle_lost":
            return _handle_lost(link, frame.handle_lost)
        case "fenced":
            return Fenced(
                link=link,
                request_id=frame.fenced.request_id,
                epoch=frame.fenced.epoch,
                held=tuple(frame.fenced.held),
            )
        case _:
            return _attempt_event(link, frame)


def _attempt_event(link: int, frame: link_pb2.Frame) -> Event | None:
    match frame.WhichOneof("kind"):
        case "terminal":
            return AttemptEnded(
                link=link,
                slot=frame.terminal.slot,
                terminal=terminal_from_proto(frame.terminal),
            )
        case "unknown":
            return AttemptUnknown(link=link, slot=frame.unknown.slot)
        case "hand_back":
            return HandedBack(link=link, slot=frame.hand_back.slot)
        case "interacted":
            return _interacted(link, frame.interacted)
        case None:  # A kind that only a newer peer knows.
            return None
        case other:
            raise _broken_protocol(f"A worker sent a frame of kind {other}.")


def _interacted(link: int, frame: link_pb2.Interacted) -> Interacted:
    return Interacted(
        link=link,
        slot=frame.slot,
        interaction_id=frame.interaction_id,
        applied_at=frame.applied_at,
        error=error_from_proto(frame.error) if frame.HasField("error") else None,
    )


def _reported(link: int, ping: link_pb2.Ping) -> ReplicaReported:
    return ReplicaReported(
        link=link,
        state=_state(ping.state),
        load=LoadReport(
            running=ping.load.running,
            waiting=ping.load.waiting,
            steps=ping.steps,
        ),
        gate=gate_from_proto(ping.gate) if ping.HasField("gate") else None,
    )


def _handle_lost(link: int, frame: link_pb2.HandleLost) -> HandleLost:
    return HandleLost(link=link, slot=frame.slot, handle_id=frame.handle_id)


def _contract(value: int) -> ResumeContract:
    """Read a contract; one that is not told, or not known here, promises nothing."""
    try:
        return ResumeContract(value)
    except ValueError:
        return ResumeContract.NONE


def _state(value: int) -> WorkerState:
    try:
        return WorkerState(value)
    except ValueError:
        raise _broken_protocol(f"There is no process state {value}.") from None


def _broken_protocol(message: str) -> MeshError:
    return MeshError(error_for("protocol_error", message))
