"""Asks an orchestrator what happened to a request."""

import msgspec
from google.protobuf.descriptor import EnumDescriptor

from stagemesh.api.admin.v1 import admin_service_pb2, admin_service_pb2_grpc
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.types.v1 import outcome_pb2
from stagemesh.rpc import open_channel

__all__ = ["Happening", "RequestStory", "StageTimes", "explain_request"]


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, `at_s` after the request was opened there."""

    at_s: float
    kind: str
    stage: str
    role: int
    attempt: int
    replica_id: str
    incarnation: str
    state: str
    cause: str
    seconds: float
    queue_s: float
    transfer_s: float
    compute_s: float


class StageTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a stage went, in seconds, added up over its attempts."""

    stage: str
    attempts: int
    wait_s: float
    queue_s: float
    transfer_s: float
    compute_s: float
    total_s: float


class RequestStory(msgspec.Struct, frozen=True, kw_only=True):
    """A request as one orchestrator knows it; outcome and reason are empty until it has its end."""

    request_id: str
    model: str
    state: str
    epoch: int
    orchestrator_id: str
    age_s: float
    outcome: str
    reason: str
    message: str
    stages: tuple[StageTimes, ...]
    happenings: tuple[Happening, ...]
    dropped: int
    label: str = ""
    """The client's own name for it."""


async def explain_request(
    address: str, request_id: str, *, timeout_s: float
) -> RequestStory | None:
    """Call `ExplainRequest` on an admin port; None where the request is not known.

    Raises:
        grpc.aio.AioRpcError: If it does not answer, or not in time.
    """
    async with open_channel(address) as channel:
        stub = admin_service_pb2_grpc.AdminServiceStub(channel)
        question = admin_service_pb2.ExplainRequestRequest(request_id=request_id)
        answer = await stub.ExplainRequest(question, timeout=timeout_s)
    return _story(answer.request) if answer.HasField("request") else None


def _story(shown: pb.GetRequestResponse) -> RequestStory:
    error = shown.terminal.error
    return RequestStory(
        request_id=shown.request_id,
        model=shown.model,
        state=shown.state,
        epoch=shown.epoch,
        orchestrator_id=shown.orchestrator_id,
        age_s=shown.age_s,
        outcome=_outcome(shown.terminal.outcome) if shown.HasField("terminal") else "",
        reason=error.reason,
        message=error.message,
        stages=tuple(_times(one) for one in shown.stages),
        happenings=tuple(_happening(event) for event in shown.events),
        dropped=shown.events_dropped,
        label=shown.label,
    )


def _times(times: pb.StageTimes) -> StageTimes:
    return StageTimes(
        stage=times.stage,
        attempts=times.attempts,
        wait_s=times.wait_s,
        queue_s=times.queue_s,
        transfer_s=times.transfer_s,
        compute_s=times.compute_s,
        total_s=times.total_s,
    )


def _happening(event: pb.RequestEvent) -> Happening:
    return Happening(
        at_s=event.at_s,
        kind=_kind(event.kind),
        stage=event.stage,
        role=event.role,
        attempt=event.attempt,
        replica_id=event.replica_id,
        incarnation=f"{event.incarnation:016x}" if event.incarnation else "",
        state=event.state.lower(),
        cause=event.cause,
        seconds=event.seconds,
        queue_s=event.timings.queue_s,
        transfer_s=event.timings.transfer_s,
        compute_s=event.timings.compute_s,
    )


def _kind(value: pb.RequestEventKind.ValueType) -> str:
    return _named(pb.RequestEventKind.DESCRIPTOR, value, "REQUEST_EVENT_KIND_")


def _outcome(value: outcome_pb2.Outcome.ValueType) -> str:
    return _named(outcome_pb2.Outcome.DESCRIPTOR, value, "OUTCOME_")


def _named(kind: EnumDescriptor, value: int, prefix: str) -> str:
    """Name a value; one that only a newer orchestrator knows goes by its number."""
    known = kind.values_by_number.get(value)
    return str(value) if known is None else known.name.removeprefix(prefix).lower()
