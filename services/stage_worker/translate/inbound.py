"""Frames of orchestrators, as events. Rows and grants need none: links speak them."""

from collections.abc import Mapping
from typing import Final

from services.stage_worker.core.events import (
    AbortAsked,
    ControlAsked,
    ControlRefused,
    Event,
    FenceRaised,
    InteractAsked,
    LinkAttached,
    ReleaseAsked,
    RenewAsked,
    SubmissionRefused,
    Submitted,
)
from services.stage_worker.core.submission import RoleSpec, Source, Submission
from services.stage_worker.engines.base import Interaction, ResumeContract
from stagemesh.api.types.v1 import control_pb2, link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import LaneJournal
from stagemesh.media import Modality, Params, Request, split_lane
from stagemesh.outcome import ErrorInfo, error_for
from stagemesh.wire import (
    call_from_proto,
    lane_mark_from_proto,
    options_from_proto,
    params_from_proto,
    request_from_proto,
)

__all__ = ["event_of", "link_attached"]

_CONTRACTS: Final[Mapping[int, ResumeContract]] = {
    int(contract): contract for contract in ResumeContract
}
_GO_ON: Final = frozenset({ResumeContract.TOKENS, ResumeContract.PER_INPUT, ResumeContract.REPLAY})


def link_attached(link: int, hello: link_pb2.Hello) -> LinkAttached:
    """Read what an orchestrator said of itself.

    Raises:
        MeshError: If it is no orchestrator.
    """
    if hello.service != link_pb2.SERVICE_KIND_ORCHESTRATOR:
        raise _broken_protocol(f"{hello.id} is no orchestrator")
    return LinkAttached(
        link=link,
        window_units=hello.limits.window_units,
        window_bytes=hello.limits.window_bytes,
    )


def event_of(link: int, frame: link_pb2.Frame) -> Event | None:
    """Read a frame; None where the core need not know.

    Raises:
        MeshError: If an orchestrator must not send such a frame.
    """
    match frame.WhichOneof("kind"):
        case "submit":
            return _submitted(link, frame.submit)
        case "control":
            return _control_asked(link, frame.control)
        case "abort":
            return AbortAsked(
                link=link,
                slot=frame.abort.slot,
                cause=frame.abort.cause,
                partials=frame.abort.partials,
            )
        case "interact":
            interact = frame.interact
            return InteractAsked(
                link=link,
                slot=interact.slot,
                interaction_id=interact.interaction_id,
                text=interact.text,
            )
        case "fence" | "renew" | "release":
            return _claim_event(link, frame)
        case "ping" | "go_away" | None:  # None is a kind that only a newer peer knows.
            return None
        case other:
            raise _broken_protocol(f"an orchestrator sent a frame of kind {other}")


def _control_asked(link: int, frame: control_pb2.Control) -> ControlAsked | ControlRefused:
    """Read a control call; one that cannot be read is refused."""
    try:
        call = call_from_proto(frame)
    except MeshError as error:
        return ControlRefused(link=link, control_id=frame.control_id, error=error.info)
    return ControlAsked(
        link=link, control_id=frame.control_id, call=call, timeout_s=frame.timeout_s
    )


def _claim_event(link: int, frame: link_pb2.Frame) -> Event:
    """Read a frame about a request's epoch and its payloads."""
    if frame.HasField("fence"):
        fence = frame.fence
        return FenceRaised(
            link=link,
            request_id=fence.request_id,
            epoch=fence.epoch,
            handle_ids=tuple(fence.handle_ids),
        )
    if frame.HasField("renew"):
        return RenewAsked(link=link, request_id=frame.renew.request_id, epoch=frame.renew.epoch)
    release = frame.release
    return ReleaseAsked(
        link=link,
        request_id=release.request_id,
        epoch=release.epoch,
        handle_ids=tuple(release.handle_ids),
    )


def _submitted(link: int, frame: link_pb2.Submit) -> Submitted | SubmissionRefused:
    """Read a submission; one that cannot be read is refused, and nobody else is at fault."""
    try:
        request, params = request_from_proto(frame.request), params_from_proto(frame.params)
        resume = {lane.lane: _resumed(lane) for lane in frame.resume}
        submission = _submission(frame, request, params, resume)
        error = _fault(submission)
    except MeshError as fault:
        nothing = Request(model=frame.request.model, messages=())
        submission = _submission(frame, nothing, Params(), {})
        error = fault.info
    if error is not None:
        return SubmissionRefused(link=link, submission=submission, error=error)
    return Submitted(link=link, submission=submission)


def _submission(
    frame: link_pb2.Submit, request: Request, params: Params, resume: Mapping[int, LaneJournal]
) -> Submission:
    return Submission(
        request_id=frame.request_id,
        epoch=frame.epoch,
        attempt=frame.attempt,
        stage=frame.stage,
        stage_name=frame.stage_name,
        roles=tuple(
            RoleSpec(
                slot=role.slot,
                role=role.role,
                companion=role.companion,
                lanes=tuple(role.lanes),
                token_ids=role.token_ids,
            )
            for role in frame.roles
        ),
        sources=tuple(
            Source(
                lane=source.lane,
                stage=source.stage,
                companion=source.companion,
                choice=source.choice,
            )
            for source in frame.sources
        ),
        deadline_left_s=frame.deadline_left_s,
        request=request,
        params=params,
        bridge=frame.bridge,
        bridge_options=options_from_proto(frame.bridge_options),
        contract=_CONTRACTS.get(frame.contract),
        resume=resume,
        interactions=tuple(
            Interaction(interaction_id=one.interaction_id, text=one.text, applied_at=one.applied_at)
            for one in frame.interactions
        ),
    )


def _resumed(lane: link_pb2.LaneJournal) -> LaneJournal:
    """Read how far a lane has come; its rows are nothing to the stage that made them."""
    mark = lane_mark_from_proto(lane)
    return LaneJournal(
        lane=mark.lane,
        next=mark.pos,
        ids=list(mark.token_ids),
        digest=mark.digest,
        end=mark.end,
    )


def _fault(submission: Submission) -> ErrorInfo | None:
    """Say what no orchestrator may submit; None if nothing is wrong."""
    for role in submission.roles:
        if not role.lanes:
            return error_for("protocol_error", f"role {role.role} is asked for no lane")
        try:
            modalities = {split_lane(lane).modality for lane in role.lanes}
        except ValueError as error:
            return error_for("protocol_error", f"role {role.role}: {error}")
        if len(modalities) < len(role.lanes):
            return error_for("protocol_error", f"role {role.role} has two lanes of one modality")
    return _resume_fault(submission)


def _resume_fault(submission: Submission) -> ErrorInfo | None:
    """Say what is wrong with where a submission is to go on."""
    asked = {lane for role in submission.roles for lane in role.lanes}
    for lane in submission.resume.values():
        if lane.lane not in asked:
            return error_for("protocol_error", f"lane {lane.lane} goes on, and nobody asks for it")
        if lane.next and submission.contract not in _GO_ON:
            return error_for("protocol_error", f"lane {lane.lane} goes on without a contract")
        by_ids = submission.contract is ResumeContract.TOKENS and lane.end is None
        text = split_lane(lane.lane).modality is Modality.TEXT
        if by_ids and text and len(lane.ids) != lane.next:
            ids = f"{len(lane.ids)} token ids up to {lane.next}"
            return error_for("protocol_error", f"lane {lane.lane} has {ids}")
    return None


def _broken_protocol(message: str) -> MeshError:
    return MeshError(error_for("protocol_error", message))
