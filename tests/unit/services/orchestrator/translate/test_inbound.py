"""Frames as events, and frames that nobody may send."""

import pytest

from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.events import (
    AbortAsked,
    AttemptEnded,
    AttemptUnknown,
    ClientAttached,
    Fenced,
    FenceRaised,
    HandedBack,
    HandleLost,
    ReplicaReported,
)
from services.orchestrator.core.replicas import LoadReport, WorkerState
from services.orchestrator.translate import (
    client_attached,
    gateway_event,
    opened,
    replica_attached,
    worker_event,
)
from stagemesh.api.types.v1 import link_pb2, media_pb2, outcome_pb2, request_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import REQUEST_SOURCE, Journal, LaneJournal, Row
from stagemesh.media import Modality
from stagemesh.outcome import ErrorCode, Outcome

WORKER_HELLO = link_pb2.Hello(
    service=link_pb2.SERVICE_KIND_STAGE_WORKER,
    id="thinker-0",
    incarnation=11,
    state=link_pb2.PROCESS_STATE_READY,
    limits=link_pb2.LinkLimits(window_units=64, window_bytes=1 << 20),
    worker=link_pb2.WorkerCard(
        pool="thinker",
        engine="synthetic",
        model="m",
        capabilities=link_pb2.Capabilities(
            input_modalities=[media_pb2.MODALITY_TEXT],
            output_modalities=[media_pb2.MODALITY_TEXT, media_pb2.MODALITY_AUDIO],
            stream_input=True,
            slots=4,
            context_tokens_max=2048,
        ),
    ),
)


def broken_hello(**changes: int) -> link_pb2.Hello:
    hello = link_pb2.Hello()
    hello.CopyFrom(WORKER_HELLO)
    for field, value in changes.items():
        setattr(hello, field, value)
    return hello


def test_a_gateway_gives_its_first_windows_when_it_attaches() -> None:
    hello = link_pb2.Hello(
        service=link_pb2.SERVICE_KIND_GATEWAY,
        limits=link_pb2.LinkLimits(window_units=64, window_bytes=1024),
    )

    assert client_attached(4, hello) == ClientAttached(
        link=4, window_units=64, window_bytes=1024, mirrors=True
    )


def test_only_gateways_attach_as_clients() -> None:
    with pytest.raises(MeshError) as caught:
        client_attached(4, WORKER_HELLO)
    assert caught.value.info.code is ErrorCode.PROTOCOL


def test_a_worker_says_what_it_is_when_it_attaches() -> None:
    event = replica_attached(5, WORKER_HELLO)

    assert (event.link, event.pool, event.replica_id, event.incarnation) == (
        5,
        "thinker",
        "thinker-0",
        11,
    )
    assert event.state is WorkerState.READY
    assert event.card.output_modalities == {Modality.TEXT, Modality.AUDIO}
    assert (event.card.slots, event.card.context_tokens_max) == (4, 2048)
    assert (event.window_units, event.window_bytes) == (64, 1 << 20)


@pytest.mark.parametrize(
    "changes", [{"service": link_pb2.SERVICE_KIND_ORCHESTRATOR}, {"state": 0}, {"state": 77}]
)
def test_a_hello_that_is_not_a_workers_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(MeshError) as caught:
        replica_attached(5, broken_hello(**changes))
    assert caught.value.info.code is ErrorCode.PROTOCOL


def test_an_open_keeps_the_request_message_as_its_body() -> None:
    request = request_pb2.Request(
        model="echo",
        messages=[request_pb2.Message(role="user", parts=[request_pb2.Part(text="hi")])],
    )
    frame = link_pb2.Open(
        slot=3, request_id="req_1", epoch=2, deadline_left_s=1.5, request=request, streamed=True
    )
    journal = Journal(lanes=[LaneJournal(lane=1, next=2)])
    inputs = [Row(3, REQUEST_SOURCE, 0, 1, "so")]
    event = opened(1, frame, journal, inputs)

    assert (event.link, event.slot, event.request_id, event.epoch) == (1, 3, "req_1", 2)
    assert event.deadline_left_s == 1.5
    assert event.request.messages[0].text == "hi"
    assert event.body == request
    assert event.journal is journal
    assert (event.streamed, event.inputs) == (True, inputs)


def test_an_open_with_an_empty_part_is_the_clients_mistake() -> None:
    frame = link_pb2.Open(
        slot=3,
        request=request_pb2.Request(
            model="echo", messages=[request_pb2.Message(role="user", parts=[request_pb2.Part()])]
        ),
    )
    with pytest.raises(MeshError) as caught:
        opened(1, frame, Journal(), [])
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == "messages[0].parts[0]"


def test_frames_of_a_gateway_become_events() -> None:
    abort = link_pb2.Frame(abort=link_pb2.Abort(slot=2, cause="client_closed"))
    lost = link_pb2.Frame(handle_lost=link_pb2.HandleLost(slot=2, handle_id="h_1"))

    assert gateway_event(1, abort) == AbortAsked(link=1, slot=2, cause="client_closed")
    assert gateway_event(1, lost) == HandleLost(link=1, slot=2, handle_id="h_1")


def test_a_slot_that_a_gateway_fences_is_told_with_its_epoch() -> None:
    frame = link_pb2.Frame(fence=link_pb2.Fence(slot=3, epoch=2**32 - 1))

    assert gateway_event(1, frame) == FenceRaised(link=1, slot=3, epoch=2**32 - 1)


def test_a_worker_hands_back_and_tells_of_higher_epochs() -> None:
    back = link_pb2.Frame(hand_back=link_pb2.HandBack(slot=3))
    fenced = link_pb2.Frame(fenced=link_pb2.Fenced(request_id="r", epoch=2, held=["h"]))

    assert worker_event(1, back) == HandedBack(link=1, slot=3)
    assert worker_event(1, fenced) == Fenced(link=1, request_id="r", epoch=2, held=("h",))


@pytest.mark.parametrize(
    ("told", "read"),
    [
        (link_pb2.RESUME_CONTRACT_TOKENS, ResumeContract.TOKENS),
        (link_pb2.RESUME_CONTRACT_UNSPECIFIED, ResumeContract.NONE),
        (99, ResumeContract.NONE),
    ],
)
def test_a_contract_that_is_not_told_promises_nothing(told: int, read: ResumeContract) -> None:
    hello = broken_hello()
    hello.worker.capabilities.resume_contract = link_pb2.ResumeContract.ValueType(told)
    hello.worker.capabilities.deterministic = True
    card = replica_attached(5, hello).card

    assert (card.resume_contract, card.deterministic) == (read, True)


def test_what_the_core_need_not_know_becomes_no_event() -> None:
    ping = link_pb2.Frame(ping=link_pb2.Ping())

    assert gateway_event(1, ping) is None
    assert gateway_event(1, link_pb2.Frame()) is None
    assert worker_event(1, link_pb2.Frame()) is None


def test_a_report_of_a_worker_carries_state_load_and_progress() -> None:
    ping = link_pb2.Ping(
        state=link_pb2.PROCESS_STATE_STALLED,
        load=link_pb2.Load(running=3, waiting=1, slots_free=5),
        steps=99,
    )

    assert worker_event(2, link_pb2.Frame(ping=ping)) == ReplicaReported(
        link=2,
        state=WorkerState.STALLED,
        load=LoadReport(running=3, waiting=1, steps=99),
    )


def test_a_worker_that_says_go_away_is_draining() -> None:
    event = worker_event(2, link_pb2.Frame(go_away=link_pb2.GoAway(reason="sigterm", drain_s=10)))

    assert isinstance(event, ReplicaReported)
    assert event.state is WorkerState.DRAINING


def test_the_end_of_an_attempt_keeps_its_cause() -> None:
    frame = link_pb2.Frame(
        terminal=link_pb2.Terminal(
            slot=8,
            outcome=outcome_pb2.OUTCOME_FAILED,
            error=outcome_pb2.ErrorInfo(
                code=outcome_pb2.ERROR_CODE_ENGINE_ERROR, reason="engine_error", message="boom"
            ),
        )
    )
    event = worker_event(2, frame)

    assert isinstance(event, AttemptEnded)
    assert event.slot == 8
    assert event.terminal.outcome is Outcome.FAILED
    assert event.terminal.error is not None
    assert event.terminal.error.code is ErrorCode.ENGINE_ERROR


def test_an_unknown_slot_and_a_lost_handle_become_events() -> None:
    unknown = link_pb2.Frame(unknown=link_pb2.Unknown(slot=4))
    lost = link_pb2.Frame(handle_lost=link_pb2.HandleLost(slot=4, handle_id="h"))

    assert worker_event(2, unknown) == AttemptUnknown(link=2, slot=4)
    assert worker_event(2, lost) == HandleLost(link=2, slot=4, handle_id="h")


@pytest.mark.parametrize("kind", ["hello", "submit", "terminal", "release"])
def test_a_frame_that_no_gateway_may_send_breaks_the_protocol(kind: str) -> None:
    frame = link_pb2.Frame()
    getattr(frame, kind).SetInParent()
    with pytest.raises(MeshError) as caught:
        gateway_event(1, frame)
    assert caught.value.info.code is ErrorCode.PROTOCOL


@pytest.mark.parametrize("kind", ["hello", "open", "submit", "abort"])
def test_a_frame_that_no_worker_may_send_breaks_the_protocol(kind: str) -> None:
    frame = link_pb2.Frame()
    getattr(frame, kind).SetInParent()
    with pytest.raises(MeshError) as caught:
        worker_event(1, frame)
    assert caught.value.info.code is ErrorCode.PROTOCOL
