import pytest

from services.stage_worker.core import RoleSpec, Source
from services.stage_worker.core.events import (
    AbortAsked,
    FenceRaised,
    InteractAsked,
    LinkAttached,
    ReleaseAsked,
    RenewAsked,
    SubmissionRefused,
    Submitted,
)
from services.stage_worker.engines.base import ResumeContract
from services.stage_worker.translate import event_of, link_attached
from stagemesh.api.types.v1 import link_pb2, outcome_pb2, request_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import LaneJournal
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import End, ErrorCode, FinishReason
from stagemesh.wire import end_to_proto, options_to_proto

TEXT = lane_of(1, 0, Modality.TEXT)


def submit(*lanes: int) -> link_pb2.Submit:
    message = link_pb2.Submit(
        request_id="req_a",
        epoch=2,
        attempt=3,
        stage=1,
        stage_name="thinker",
        deadline_left_s=4.5,
        request=request_pb2.Request(model="m", choices=2, seed=9),
        params=request_pb2.Params(sampling=request_pb2.Sampling(tokens_max=7)),
        bridge="clauses",
        bridge_options=options_to_proto({"chars_min": 5}),
    )
    message.roles.add(slot=11, role=3, companion="negative", lanes=lanes)
    message.sources.add(
        lane=16, stage="listener", companion="c", mode=link_pb2.EDGE_MODE_STREAM, choice=1
    )
    return message


def test_a_submission_is_read_whole() -> None:
    event = event_of(5, link_pb2.Frame(submit=submit(TEXT)))
    assert isinstance(event, Submitted)
    read = event.submission
    assert event.link == 5
    assert (read.request_id, read.epoch, read.attempt) == ("req_a", 2, 3)
    assert (read.stage, read.stage_name, read.deadline_left_s) == (1, "thinker", 4.5)
    assert read.roles == (RoleSpec(slot=11, role=3, companion="negative", lanes=(TEXT,)),)
    assert read.sources == (Source(lane=16, stage="listener", companion="c", choice=1),)
    assert (read.request.choices, read.request.seed) == (2, 9)
    assert read.params.sampling.tokens_max == 7
    assert (read.bridge, read.bridge_options) == ("clauses", {"chars_min": 5})


def test_where_to_go_on_is_read_by_lane() -> None:
    message = submit(TEXT)
    message.roles[0].token_ids = True
    message.contract = link_pb2.RESUME_CONTRACT_TOKENS
    lane = message.resume.add(lane=TEXT, pos=2, token_ids=[7, 8], digest=b"d")
    lane.end.CopyFrom(end_to_proto(End(finish_reason=FinishReason.LENGTH)))
    event = event_of(5, link_pb2.Frame(submit=message))
    assert isinstance(event, Submitted)
    assert event.submission.contract is ResumeContract.TOKENS
    assert event.submission.roles[0].token_ids
    assert event.submission.resume == {
        TEXT: LaneJournal(
            lane=TEXT,
            next=2,
            ids=[7, 8],
            digest=b"d",
            end=End(finish_reason=FinishReason.LENGTH),
        )
    }


@pytest.mark.parametrize(
    ("contract", "lane"),
    [
        (link_pb2.RESUME_CONTRACT_TOKENS, link_pb2.LaneJournal(lane=TEXT, pos=2, token_ids=[7])),
        (link_pb2.RESUME_CONTRACT_UNSPECIFIED, link_pb2.LaneJournal(lane=TEXT, pos=2)),
        (link_pb2.RESUME_CONTRACT_RESTART, link_pb2.LaneJournal(lane=TEXT, pos=2)),
        (77, link_pb2.LaneJournal(lane=TEXT, pos=2)),
        (link_pb2.RESUME_CONTRACT_REPLAY, link_pb2.LaneJournal(lane=TEXT + 16, pos=2)),
        (
            link_pb2.RESUME_CONTRACT_REPLAY,
            link_pb2.LaneJournal(lane=TEXT, end=outcome_pb2.End()),
        ),
    ],
)
def test_what_nobody_can_go_on_from_refuses_the_submission(
    contract: link_pb2.ResumeContract.ValueType, lane: link_pb2.LaneJournal
) -> None:
    message = submit(TEXT)
    message.contract = contract
    message.resume.append(lane)
    event = event_of(5, link_pb2.Frame(submit=message))
    assert isinstance(event, SubmissionRefused)
    assert event.submission.roles[0].slot == 11


@pytest.mark.parametrize("lanes", [(), (TEXT, TEXT), (lane_of(1, 0, Modality.TEXT) | 0xF,)])
def test_lanes_that_make_no_sense_refuse_the_submission(lanes: tuple[int, ...]) -> None:
    event = event_of(5, link_pb2.Frame(submit=submit(*lanes)))
    assert isinstance(event, SubmissionRefused)
    assert event.error.code is ErrorCode.PROTOCOL
    assert event.submission.roles[0].slot == 11


def test_a_request_that_cannot_be_read_refuses_the_submission() -> None:
    message = submit(TEXT)
    message.request.messages.add(role="user").parts.add()
    event = event_of(5, link_pb2.Frame(submit=message))
    assert isinstance(event, SubmissionRefused)
    assert event.error.code is ErrorCode.INVALID_ARGUMENT


def test_the_other_frames_are_read_field_by_field() -> None:
    frames = {
        link_pb2.Frame(abort=link_pb2.Abort(slot=3, cause="client")).SerializeToString(): (
            AbortAsked(link=5, slot=3, cause="client")
        ),
        link_pb2.Frame(
            fence=link_pb2.Fence(request_id="a", epoch=2, handle_ids=["h"])
        ).SerializeToString(): (FenceRaised(link=5, request_id="a", epoch=2, handle_ids=("h",))),
        link_pb2.Frame(renew=link_pb2.Renew(request_id="a", epoch=2)).SerializeToString(): (
            RenewAsked(link=5, request_id="a", epoch=2)
        ),
        link_pb2.Frame(
            release=link_pb2.Release(request_id="a", epoch=2, handle_ids=["h"])
        ).SerializeToString(): (ReleaseAsked(link=5, request_id="a", epoch=2, handle_ids=("h",))),
    }
    for data, event in frames.items():
        assert event_of(5, link_pb2.Frame.FromString(data)) == event


@pytest.mark.parametrize(
    "frame",
    [
        link_pb2.Frame(),
        link_pb2.Frame(ping=link_pb2.Ping()),
        link_pb2.Frame(go_away=link_pb2.GoAway()),
    ],
)
def test_some_frames_say_nothing_to_the_core(frame: link_pb2.Frame) -> None:
    assert event_of(5, frame) is None


def test_a_frame_that_only_workers_send_breaks_the_protocol() -> None:
    with pytest.raises(MeshError):
        event_of(5, link_pb2.Frame(terminal=link_pb2.Terminal()))


def test_an_orchestrator_says_its_first_window() -> None:
    hello = link_pb2.Hello(
        service=link_pb2.SERVICE_KIND_ORCHESTRATOR,
        limits=link_pb2.LinkLimits(window_units=8, window_bytes=99),
    )
    assert link_attached(5, hello) == LinkAttached(link=5, window_units=8, window_bytes=99)


def test_anybody_else_is_turned_away() -> None:
    with pytest.raises(MeshError):
        link_attached(5, link_pb2.Hello(service=link_pb2.SERVICE_KIND_GATEWAY))


def test_another_prompt_is_read_and_so_are_those_that_were_taken() -> None:
    frame = link_pb2.Frame(interact=link_pb2.Interact(slot=3, interaction_id="p", text="x"))
    assert event_of(1, frame) == InteractAsked(link=1, slot=3, interaction_id="p", text="x")
    submit = link_pb2.Submit(request_id="a", roles=[link_pb2.RoleSpec(slot=1, lanes=[TEXT])])
    submit.request.choices = 1
    submit.interactions.add(interaction_id="p", text="x", applied_at=7)
    event = event_of(1, link_pb2.Frame(submit=submit))
    assert isinstance(event, Submitted)
    [prompt] = event.submission.interactions
    assert (prompt.interaction_id, prompt.text, prompt.applied_at) == ("p", "x", 7)
