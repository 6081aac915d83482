"""How a lost group goes on: which way its contract and its journal leave open.

A *way* is judged by positions alone: what was given is never given again and never contradicted.
"""

from services.orchestrator.core.contracts import ResumeContract, effective
from services.orchestrator.core.effects import ResetLanes
from services.orchestrator.core.ending import fail, set_aside
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.history import Kind
from services.orchestrator.core.interactions import pending
from services.orchestrator.core.journal import tail_of
from services.orchestrator.core.replicas import WorkerCard
from services.orchestrator.core.request import Attempt, Group, OpenRequest, Standing, Way
from services.orchestrator.core.state import State
from stagemesh.link.core import LaneJournal
from stagemesh.media import Modality
from stagemesh.outcome import error_for
from stagemesh.pipeline import EdgeMode

__all__ = ["marks_of", "prepare", "way_of"]


def prepare(state: State, group: Group, card: WorkerCard) -> bool:
    """Make a lost group ready for a replica of this kind; False if its request had to fail."""
    way = way_of(state, group, card)
    if way is None:
        stage = group.stage
        lost = error_for("replica_lost", stage=stage.name, pool=stage.pool)
        fail(state, group.request, group.cause or lost)
        return False
    if way.reset:
        _reset(state, group)
    group.way = way
    return True


def way_of(state: State, group: Group, card: WorkerCard) -> Way | None:
    """Give the way in which a replica of this kind can go on with a group; None if it cannot."""
    contract = _contract(group, card)
    held = all(lane.held for lane in group.kept_sources) and not group.request.unrecoverable
    held = held and not any(lane.missing for lane in group.sources)
    if contract is ResumeContract.NONE or not held:
        return None
    lanes = [group.request.lanes[n] for role in group.idle_roles for n in role.lanes]
    if not (group.stale or any(lane.begun for lane in lanes)):
        return Way(contract)
    way = None if group.stale else _way_on(group, lanes, card)
    if way is None and _resettable(state, group):
        return Way(ResumeContract.RESTART, reset=True)
    return way


def _contract(group: Group, card: WorkerCard) -> ResumeContract:
    """Give the contract that holds for a group: with a prompt that nobody answered, no replay."""
    contract = effective(card)
    if contract is not ResumeContract.NONE and pending(group):
        return ResumeContract.RESTART
    return contract


def _way_on(group: Group, lanes: list[Lane], card: WorkerCard) -> Way | None:
    """Give the way on behind what lanes have given; None if there is none."""
    contract = _contract(group, card)
    if contract is ResumeContract.TOKENS and all(map(_known_by_ids, lanes)):
        return Way(contract)
    if contract is ResumeContract.PER_INPUT and card.deterministic:
        start = _input_start(group, lanes)
        return Way(ResumeContract.REPLAY) if start is None else Way(contract, start)
    return Way(contract) if contract is ResumeContract.REPLAY else None


def marks_of(attempts: list[Attempt], way: Way) -> tuple[LaneJournal, ...]:
    """Tell a worker where the lanes of these attempts stand; nothing where it begins anew."""
    lanes = [lane for attempt in attempts for lane in attempt.lanes.values()]
    if not any(lane.begun for lane in lanes):
        return ()
    marks = []
    for lane in lanes:
        mark = tail_of(lane.number, lane.cursor.next - lane.start, lane.log, way.contract)
        mark.end = lane.finish if lane.cursor.ended else None
        marks.append(mark)
    return tuple(marks)


def _known_by_ids(lane: Lane) -> bool:
    if lane.modality is not Modality.TEXT:
        return not lane.begun
    ids = None if lane.log is None else lane.log.ids
    given = lane.cursor.next - lane.start
    return not given or (ids is not None and len(ids) == given)


def _input_start(group: Group, lanes: list[Lane]) -> int | None:
    """Find the first unit of the input whose outputs came last, if one can begin there.

    Whether they were all of its outputs nobody tells, so it is made again in any case.
    """
    if len(lanes) != 1 or [source.mode for source in group.plan.sources] != [EdgeMode.STREAM]:
        return None
    log = lanes[0].log
    if log is None or log.origin is None:
        return None
    start = log.origin[0]
    return None if group.sources[0].index_at(start) is None else start


def _resettable(state: State, group: Group) -> bool:
    """Whether the client was given nothing that a group, or anything after it, made."""
    groups = _with_downstream(group)
    own = {lane.number for one in groups for lane in one.lanes}
    for one in groups:
        if any(lane.segments or (lane.visible and lane.begun) for lane in one.lanes):
            return False  # What earlier runs gave is not to be given again.
        if not all(lane.held for lane in one.sources if lane.number not in own):
            return False
        card = one.card or state.pool_of(one).card
        started = one.standing not in (Standing.WAITING, Standing.PENDING)
        if started and card is not None and effective(card) is ResumeContract.NONE:
            return False
    return True


def _with_downstream(group: Group) -> list[Group]:
    """Give the groups of a stage, and of all that reads what it gives."""
    stages = {group.stage.name}
    for one in group.request.groups:
        if any(source.stage in stages for source in one.plan.sources):
            stages.add(one.stage.name)
    return [one for one in group.request.groups if one.stage.name in stages]


def _reset(state: State, first: Group) -> None:
    """Drop what a group gave and what others made of it; they begin again when it has."""
    request = first.request
    groups = _with_downstream(first)
    for group in groups:
        for attempt in group.attempts:
            set_aside(state, attempt, "begins again")
        group.attempts = ()
        group.ticket, group.way, group.loss, group.stale = None, None, None, False
        state.timers.cancel(group.timer)
        group.timer = None
        group.resumes = group is first
        group.move(Standing.LOST if group is first else Standing.WAITING)
        group.want_inputs()
        group.keep_inputs()
    for group in groups:
        for lane in group.lanes:
            lane.reset()
    _count_again(request)
    state.note(request, Kind.RESET, stage=first.stage.name)
    state.touch(request)
    if request.client.mirrors:
        stages = tuple(sorted({group.stage.index for group in groups}))
        state.orders.to_client(
            ResetLanes(link=request.client.link, slot=request.slot, stages=stages)
        )


def _count_again(request: OpenRequest) -> None:
    lanes = request.lanes.values()
    request.lanes_left = sum(lane.visible and not lane.cursor.ended for lane in lanes)
    request.journal_bytes = request.measured_bytes
