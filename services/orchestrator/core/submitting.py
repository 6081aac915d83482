"""Submitting: a group is given to a replica, with what is there of its inputs.

Choices of one stage that fit beside it go in the same submission.
"""

from services.orchestrator.core.contracts import ResumeContract, effective
from services.orchestrator.core.credit import pump_feed
from services.orchestrator.core.effects import PlaceNotice, RoleOrder, SubmitAttempts
from services.orchestrator.core.feeds import Feed
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.history import Kind
from services.orchestrator.core.interactions import applied, give_again
from services.orchestrator.core.journal import LaneLog
from services.orchestrator.core.moves import AttemptState
from services.orchestrator.core.replicas import Replica
from services.orchestrator.core.request import Attempt, Group, OpenRequest, Standing
from services.orchestrator.core.resuming import marks_of, prepare
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from stagemesh.link.core import Placed, Window
from stagemesh.media import Modality
from stagemesh.pipeline import EdgeMode, effective_params

__all__ = ["submit"]


def submit(state: State, first: Group, replica: Replica) -> None:
    """Submit a group, and those other choices of its stage that fit beside it."""
    request = first.request
    groups = _beside(state, first, replica)
    for group in groups:
        if group.resumes and not _ready(state, group, replica):
            return
    groups = [group for group in groups if group.way == first.way]
    request.homes[replica.pool.name] = replica
    if not replica.in_flight:
        replica.progress_s = state.now_s
    number = 1 + max(group.numbers_used for group in groups)
    attempts = [attempt for group in groups for attempt in _bind(state, group, replica, number)]
    if request.mirrored:
        _tell_gateway(state, request, attempts)
    state.orders.to_worker(_submission(state, request, groups, attempts, number))
    for group in groups:
        give_again(state, group)
        _feed(state, group)
        if not group.resumes:
            replica.pool.budget.earn()
        once = not group.plan.segmented  # Who runs again is sent what it reads whole again.
        if once and effective(replica.card) is ResumeContract.NONE and not group.wanted:
            group.release_inputs()
    if request.intake is not None:
        state.touch(request)  # It may be waiting for its client now.
    if replica.stall_timer is None:
        replica.stall_timer = state.arm(state.settings.stall_s, Due.STALL, replica)


def _ready(state: State, group: Group, replica: Replica) -> bool:
    """Whether a group that was lost can go on here at once; else it failed, or begins again."""
    return prepare(state, group, replica.card) and group.standing is Standing.PENDING


def _beside(state: State, first: Group, replica: Replica) -> list[Group]:
    """Give a group, and those other choices of its stage that fit beside it."""
    groups = [first]
    free = replica.free - first.wanted
    for other in first.request.groups:
        beside = other is not first and other.stage is first.stage and _wants_now(state, other)
        alike = other.resumes is first.resumes
        if beside and alike and other.wanted <= free and replica.link not in other.avoid:
            groups.append(other)
            free -= other.wanted
    return groups


def _wants_now(state: State, group: Group) -> bool:
    """Whether a group waits for a slot, or its back-off ends at this very moment."""
    if group.ticket is not None or group.standing is not Standing.PENDING:
        return group.ticket is not None
    return group.timer is not None and group.timer.when_s <= state.now_s


def _bind(state: State, group: Group, replica: Replica, number: int) -> tuple[Attempt, ...]:
    request = group.request
    group.ticket = None
    state.timers.cancel(group.timer)
    group.timer = None
    group.move(Standing.LIVE)
    group.numbers_used = number
    group.card = replica.card
    pending = tuple(a for a in group.attempts if a.state is AttemptState.PENDING)
    pending = pending[: max(group.wanted_at_once, replica.free)]
    for attempt in pending:
        attempt.move(AttemptState.SUBMITTED)
        attempt.number = number
        attempt.placed_on = replica
        attempt.slot = replica.mint.next()
        attempt.lanes = {lane: request.lanes[lane] for lane in attempt.role.lanes}
        attempt.open_lanes = {n for n, lane in attempt.lanes.items() if not lane.cursor.ended}
        for lane in attempt.lanes.values():
            _begin_lane(request, lane, attempt, effective(replica.card))
        replica.attempts[attempt.slot] = attempt
        request.live += 1
        attempt.submitted_s = state.now_s
        state.note_attempt(attempt, Kind.SUBMITTED, seconds=state.now_s - group.pending_s)
    return pending


def _begin_lane(
    request: OpenRequest, lane: Lane, attempt: Attempt, contract: ResumeContract
) -> None:
    """Set a lane up for an attempt: what is kept of it, and who gets it first."""
    lane.attempt = attempt
    lane.begin_attempt()
    if lane.log is None and not request.unrecoverable:
        lane.log = LaneLog.begun(contract, lane.modality, lane.cursor.next, lane.start)
    # What cannot be made again is at the gateway before anything is made of it.
    tells = request.mirrored and contract is not ResumeContract.REPLAY
    if lane.visible:
        lane.gated = tells and not lane.direct
    elif not (lane.begun or lane.segments):
        lane.mirrored = tells


def _tell_gateway(state: State, request: OpenRequest, attempts: list[Attempt]) -> None:
    for attempt in attempts:
        placed = Placed(
            stage=attempt.group.stage.index,
            role=attempt.role.role,
            attempt=attempt.number,
            replica_id=attempt.replica.replica_id,
            incarnation=attempt.replica.incarnation,
        )
        state.orders.to_client(
            PlaceNotice(link=request.client.link, slot=request.slot, placed=placed)
        )


def _submission(
    state: State,
    request: OpenRequest,
    groups: list[Group],
    attempts: list[Attempt],
    number: int,
) -> SubmitAttempts:
    way, card = groups[0].way, attempts[0].replica.card
    by_ids = effective(card) is ResumeContract.TOKENS
    return SubmitAttempts(
        link=attempts[0].replica.link,
        request_id=request.request_id,
        epoch=request.work_epoch,
        attempt=number,
        model=request.plan.pipeline.name,
        stage=groups[0].stage.index,
        roles=tuple(
            RoleOrder(
                slot=attempt.slot,
                role=attempt.role.role,
                companion=attempt.role.companion,
                lanes=attempt.role.lanes,
                token_ids=by_ids
                and any(lane.modality is Modality.TEXT for lane in attempt.lanes.values()),
            )
            for attempt in attempts
        ),
        sources=tuple(source for group in groups for source in group.plan.sources),
        deadline_left_s=max(0.0, request.deadline_s - state.now_s),
        params=effective_params(groups[0].stage, *request.wishes),
        body=request.body,
        contract=None if way is None else way.contract,
        resume=() if way is None else marks_of(attempts, way),
        prompts=applied(groups[0]),
    )


def _feed(state: State, group: Group) -> None:
    """Give a group that was just submitted what is there of its inputs."""
    request = group.request
    only_stream = group.plan.stream_inputs == 1
    start = 0 if group.way is None else group.way.start
    placed = [attempt for attempt in group.attempts if attempt.state is AttemptState.SUBMITTED]
    group.unfed = False
    for lane in group.kept_sources:
        lane.unfed -= 1
    for source, lane in zip(group.plan.sources, group.sources, strict=True):
        lane.packs &= effective(placed[0].replica.card) is not ResumeContract.PER_INPUT
        for attempt in placed:
            if lane.number in attempt.feeds:
                continue
            replica = attempt.replica
            feed = Feed(
                lane=lane,
                link=replica.link,
                slot=attempt.slot,
                window=Window(replica.window_units, replica.window_bytes),
                join_units_max=1 if lane.intake else max(1, replica.window_units // 2),
                paces=only_stream and source.mode is EdgeMode.STREAM,
                next=lane.base,
                accepted=request.unrecoverable,
            )
            if source.mode is EdgeMode.SEGMENT:
                _aim(feed, lane, group.segment)
            elif start:
                feed.skip_to(lane.index_at(start) or lane.base)
            attempt.feeds[lane.number] = feed
            lane.feeds.append(feed)
        for attempt in placed:
            pump_feed(state, attempt.feeds[lane.number], request)


def _aim(feed: Feed, lane: Lane, segment: int) -> None:
    """Let a feed give one segment, as if it were all of the lane."""
    feed.next = lane.segment_start(segment)
    feed.stop = lane.segment_stop(segment)
    feed.shift = lane.rows[feed.next - lane.base].pos
