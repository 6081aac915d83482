"""What clients and operators see of requests."""

from services.orchestrator.core.history import Entry, Kind
from services.orchestrator.core.views import AttemptView, RequestView
from services.orchestrator.translate import request_summary_to_proto, request_view_to_proto
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.types.v1 import outcome_pb2
from stagemesh.outcome import COMPLETED, Timings

VIEW = RequestView(
    request_id="req_1",
    model="echo",
    state="RUNNING",
    age_s=1.5,
    attempts=(
        AttemptView(stage="thinker", role=1, number=2, state="STREAMING", replica_id="t-0"),
    ),
    label="mine",
    epoch=3,
    serial=7,
    opened_s=100.0,
    entries=(
        Entry(at_s=100.0, kind=Kind.OPENED),
        Entry(
            at_s=100.25, kind=Kind.SUBMITTED, stage="thinker", role=1, attempt=1,
            replica_id="t-1", incarnation=9, state="SUBMITTED", seconds=0.125,
        ),
        Entry(
            at_s=101.25, kind=Kind.ATTEMPT_ENDED, stage="thinker", role=1, attempt=1,
            replica_id="t-1", incarnation=9, state="LOST", cause="It was lost.", seconds=1.0,
            timings=Timings(queue_s=0.5, transfer_s=0.125, compute_s=0.25, total_s=0.75),
        ),
        Entry(at_s=101.5, kind=Kind.SUBMITTED, stage="thinker", attempt=2, seconds=0.25),
    ),
    entries_dropped=4,
)  # fmt: skip


def test_a_request_is_shown_with_its_attempts() -> None:
    shown = request_view_to_proto(VIEW, "o-0")

    assert (shown.request_id, shown.model, shown.state, shown.age_s) == (
        "req_1",
        "echo",
        "RUNNING",
        1.5,
    )
    assert (shown.epoch, shown.orchestrator_id, shown.events_dropped) == (3, "o-0", 4)
    assert shown.label == "mine"
    [attempt] = shown.attempts
    assert (attempt.stage, attempt.role, attempt.attempt) == ("thinker", 1, 2)
    assert (attempt.state, attempt.replica_id) == ("STREAMING", "t-0")
    assert not shown.HasField("terminal")


def test_a_request_that_is_done_is_shown_with_its_terminal() -> None:
    view = RequestView(
        request_id="req_1", model="echo", state="DONE", age_s=2.0, terminal=COMPLETED
    )
    shown = request_view_to_proto(view, "o-0")

    assert shown.terminal.outcome == outcome_pb2.OUTCOME_COMPLETED


def test_events_have_their_times_from_the_opening_on() -> None:
    events = request_view_to_proto(VIEW, "o-0").events

    assert [event.at_s for event in events] == [0.0, 0.25, 1.25, 1.5]
    assert [event.kind for event in events] == [
        pb.REQUEST_EVENT_KIND_OPENED,
        pb.REQUEST_EVENT_KIND_SUBMITTED,
        pb.REQUEST_EVENT_KIND_ATTEMPT_ENDED,
        pb.REQUEST_EVENT_KIND_SUBMITTED,
    ]
    ended = events[2]
    assert (ended.stage, ended.role, ended.attempt, ended.replica_id, ended.incarnation) == (
        "thinker",
        1,
        1,
        "t-1",
        9,
    )
    assert (ended.state, ended.cause, ended.seconds) == ("LOST", "It was lost.", 1.0)
    assert (ended.timings.queue_s, ended.timings.transfer_s) == (0.5, 0.125)
    assert not events[0].HasField("timings")


def test_the_times_of_a_stage_are_added_up_and_none_is_counted_twice() -> None:
    [times] = request_view_to_proto(VIEW, "o-0").stages

    assert (times.stage, times.attempts, times.wait_s) == ("thinker", 2, 0.375)
    assert (times.queue_s, times.transfer_s, times.compute_s) == (0.375, 0.125, 0.25)
    assert times.total_s == 1.0


def test_every_kind_of_entry_has_its_number_on_the_wire() -> None:
    wire = {
        value.name.removeprefix("REQUEST_EVENT_KIND_"): value.number
        for value in pb.RequestEventKind.DESCRIPTOR.values
        if value.number
    }
    assert {kind.name: kind.value for kind in Kind} == wire


def test_a_line_of_a_list_says_how_long_ago_a_request_was_opened() -> None:
    line = request_summary_to_proto(VIEW, "o-0", 102.0)

    assert (line.request_id, line.model, line.state) == ("req_1", "echo", "RUNNING")
    assert (line.epoch, line.orchestrator_id, line.number) == (3, "o-0", 7)
    assert (line.opened_ago_s, line.label) == (2.0, "mine")
    assert not line.HasField("terminal")
