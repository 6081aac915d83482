"""Requests and what happened to them, as answers to clients, operators and other orchestrators."""

from collections.abc import Iterable

from services.orchestrator.core.history import Entry, Kind
from services.orchestrator.core.views import RequestView
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.wire import request_terminal_to_proto, timings_to_proto

__all__ = ["request_summary_to_proto", "request_view_to_proto"]


def request_view_to_proto(
    view: RequestView, orchestrator_id: str
) -> orchestrator_service_pb2.GetRequestResponse:
    """Make what a client sees of its request."""
    return orchestrator_service_pb2.GetRequestResponse(
        request_id=view.request_id,
        label=view.label,
        model=view.model,
        state=view.state,
        age_s=view.age_s,
        attempts=[
            orchestrator_service_pb2.AttemptStatus(
                stage=attempt.stage,
                role=attempt.role,
                attempt=attempt.number,
                state=attempt.state,
                replica_id=attempt.replica_id,
            )
            for attempt in view.attempts
        ],
        terminal=None if view.terminal is None else request_terminal_to_proto(view.terminal),
        epoch=view.epoch,
        orchestrator_id=orchestrator_id,
        events=[_event(entry, view.opened_s) for entry in view.entries],
        events_dropped=view.entries_dropped,
        stages=_stage_times(view.entries),
    )


def request_summary_to_proto(
    view: RequestView, orchestrator_id: str, now_s: float
) -> orchestrator_service_pb2.RequestSummary:
    """Make the line of a request in a list; `now_s` is on the core's clock."""
    return orchestrator_service_pb2.RequestSummary(
        request_id=view.request_id,
        label=view.label,
        model=view.model,
        state=view.state,
        epoch=view.epoch,
        orchestrator_id=orchestrator_id,
        opened_ago_s=max(0.0, now_s - view.opened_s),
        terminal=None if view.terminal is None else request_terminal_to_proto(view.terminal),
        number=view.serial,
    )


def _event(entry: Entry, opened_s: float) -> orchestrator_service_pb2.RequestEvent:
    return orchestrator_service_pb2.RequestEvent(
        at_s=entry.at_s - opened_s,
        kind=orchestrator_service_pb2.RequestEventKind.ValueType(entry.kind),
        stage=entry.stage,
        role=entry.role,
        attempt=entry.attempt,
        replica_id=entry.replica_id,
        incarnation=entry.incarnation,
        state=entry.state,
        cause=entry.cause,
        seconds=entry.seconds,
        timings=None if entry.timings is None else timings_to_proto(entry.timings),
    )


def _stage_times(entries: Iterable[Entry]) -> list[orchestrator_service_pb2.StageTimes]:
    """Add up where the time of each stage went, in the order in which they were submitted."""
    stages: dict[str, orchestrator_service_pb2.StageTimes] = {}
    for entry in entries:
        if entry.kind not in (Kind.SUBMITTED, Kind.ATTEMPT_ENDED):
            continue
        times = stages.get(entry.stage)
        if times is None:
            times = stages[entry.stage] = orchestrator_service_pb2.StageTimes(stage=entry.stage)
        if entry.kind is Kind.SUBMITTED:
            times.attempts += 1
            times.wait_s += entry.seconds
            continue
        times.total_s += entry.seconds
        if entry.timings is not None:
            times.queue_s += max(0.0, entry.timings.queue_s - entry.timings.transfer_s)
            times.transfer_s += entry.timings.transfer_s
            times.compute_s += entry.timings.compute_s
    return list(stages.values())
