"""The worker's core under any order of events: what it may send, and that all of it ends."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from services.stage_worker.core import (
    Identity,
    Limits,
    ProcessState,
    RoleSpec,
    StageWorker,
    State,
)
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.link.core import Grant, LaneJournal, Row
from stagemesh.media import Modality, lane_of, split_lane
from stagemesh.outcome import End, ErrorCode, FinishReason, Outcome, error_for
from tests.helpers.heard import Heard
from tests.helpers.worker_controls import ALL
from tests.helpers.worker_draws import BEHAVIOURS, LANES, SOURCE, STAGE, seldom, submission_of
from tests.helpers.worker_operators import Operators

pytestmark = pytest.mark.invariant("ORCH-INV-230", "ORCH-INV-231")

SLOTS = 4
WINDOW = (3, 40)
OUTBOX_BYTES_MAX = 20
END = End(finish_reason=FinishReason.STOP)

GO_ON = (ResumeContract.TOKENS, ResumeContract.REPLAY, ResumeContract.PER_INPUT)


class StageWorkerMachine(Operators):
    """Orchestrators, an engine and a clock around the core."""

    def __init__(self) -> None:
        super().__init__()
        self.core = StageWorker(
            Identity(pool="p", replica_id="r"),
            Limits(outbox_bytes_max=OUTBOX_BYTES_MAX, stall_s=1000.0),
        )
        self.now_s = 0.0
        self.links: set[int] = set()
        self.link_count = self.slot_count = 0
        self.heard: dict[tuple[int, int], Heard] = {}
        self.behaviours: dict[int, str] = {}
        self.engine: dict[int, set[Modality]] = {}  # type: ignore[assignment]  # As the rules see it.
        self.aborted: set[int] = set()
        self.started: set[int] = set()
        self.keys: dict[tuple[int, int], tuple[str, int]] = {}
        self.silenced: set[tuple[int, int]] = set()
        self.awaited: set[tuple[int, int]] = set()
        self.unknown: dict[tuple[int, int], int] = defaultdict(int)
        self.refused = self.exited = False

    @initialize(contract=st.sampled_from(ResumeContract))
    def load(self, contract: ResumeContract) -> None:
        """The engine is loaded, and the first orchestrator comes."""
        self.step(seen.EngineLoaded(slots=SLOTS, contract=contract, control=ALL))
        self.attach(really=True)

    # Performing effects, as the driver does.

    def step(self, event: seen.Event) -> None:
        """Step an event, and what its effects cause."""
        caused: list[seen.Event] = []
        for effect in self.core.step(event, self.now_s):
            caused += self.perform(effect)
        for follow in caused:
            self.step(follow)

    def perform(self, effect: do.Effect) -> list[seen.Event]:
        """Perform one effect, and check it."""
        match effect:
            case do.SendRows(link=link, rows=rows):
                assert link in self.links
                for row in rows:
                    self.heard[link, row.slot].take(row)
            case do.SendTerminal(link=link, slot=slot, terminal=terminal):
                assert link in self.links
                assert not self.heard[link, slot].over, "a second end"
                assert terminal.outcome is not Outcome.COMPLETED
                self.heard[link, slot].terminal = True
            case do.SendHandBack(link=link, slot=slot):
                assert link in self.links
                assert not self.heard[link, slot].over, "a second end"
                assert self.core.state is ProcessState.DRAINING
                self.heard[link, slot].terminal = True
            case do.SendUnknown(link=link, slot=slot):
                self.unknown[link, slot] += 1
                assert self.unknown[link, slot] == 1
            case do.SendFenced(request_id=request, epoch=epoch):
                self.refused = True
                self.silence(request, epoch)
            case do.StartAttempt():
                self.perform_control(effect)
                return self.start(effect)
            case do.FeedAttempt(attempt=attempt, rows=rows):
                return [
                    seen.InputTaken(attempt=attempt, lane=r.lane, units=r.units, bytes=len(r.text))
                    for r in rows
                ]
            case do.AbortEngine(attempt=attempt):
                # It may have ended in the very step that made the core stop it.
                assert attempt in self.started
                assert attempt not in self.aborted, "aborted twice"
                self.aborted.add(attempt)
            case do.InteractEngine(attempt=attempt, interaction_id=name):
                assert attempt in self.started
                return [seen.Interacted(attempt=attempt, interaction_id=name)]
            case do.Exit(error=error):
                assert not self.exited
                self.exited = True
                assert error is None
            case _:
                self.perform_control(effect)
        return []

    def silence(self, request: str, epoch: int) -> None:
        """Expect nothing more of a request's lower epochs."""
        self.silenced |= {
            key for key, (other, lower) in self.keys.items() if other == request and lower < epoch
        }

    def start(self, effect: do.StartAttempt) -> list[seen.Event]:
        """Start an attempt as the test has drawn it."""
        number, role = effect.attempt, effect.role
        assert number not in self.started
        self.started.add(number)
        match self.behaviours[role.slot]:
            case "starts":
                self.engine[number] = {split_lane(lane).modality for lane in role.lanes}
                return [seen.AttemptStarted(attempt=number), seen.InputClosed(attempt=number)]
            case "breaks":
                return [seen.AttemptBroke(attempt=number, error=error_for("invalid_value"))]
            case "has nothing":
                return [seen.NothingToDo(attempt=number)]
            case _:
                return []

    # What may happen.

    @rule(really=seldom(4))
    def attach(self, really: bool) -> None:
        """An orchestrator comes."""
        if self.links and not really:
            return
        self.link_count += 1
        self.links.add(self.link_count)
        window_units, window_bytes = WINDOW
        self.step(
            seen.LinkAttached(
                link=self.link_count, window_units=window_units, window_bytes=window_bytes
            )
        )

    @precondition(lambda self: self.links)
    @rule(data=st.data(), really=seldom(6))
    def lose_link(self, data: st.DataObject, really: bool) -> None:
        """A link breaks: everything on it is over."""
        if not really:
            return
        link = data.draw(st.sampled_from(sorted(self.links)))
        self.links.discard(link)
        self.step(seen.LinkLost(link=link))

    @precondition(lambda self: self.links)
    @rule(
        data=st.data(),
        request=st.sampled_from(["a", "b", "c"]),
        epoch=st.sampled_from([1, 1, 1, 2, 3]),
        attempt=st.integers(1, 2),
        contract=st.sampled_from([None, *ResumeContract]),
        choices=st.integers(1, 3),
        lanes=LANES,
        deadline_s=st.sampled_from([0.0, 0.0, 1.0, 5.0]),
    )
    def submit(
        self, data: st.DataObject, request: str, epoch: int, choices: int, **more: Any
    ) -> None:
        """An orchestrator submits a stage."""
        link = data.draw(st.sampled_from(sorted(self.links)))
        roles = []
        resume: dict[int, LaneJournal] = {}
        for role in range(choices):
            self.slot_count += 1
            lanes = tuple(lane_of(STAGE, role, modality) for modality in sorted(more["lanes"]))
            if more["contract"] in GO_ON:
                resume |= {lane: self.journal(data, lane, lane != lanes[0]) for lane in lanes}
            roles.append(
                RoleSpec(
                    slot=self.slot_count,
                    role=role,
                    companion="",
                    lanes=lanes,
                    token_ids=data.draw(st.booleans()),
                )
            )
            self.heard[link, self.slot_count] = Heard(lanes, resume, WINDOW)
            self.keys[link, self.slot_count] = (request, epoch)
            self.behaviours[self.slot_count] = data.draw(BEHAVIOURS)
        submission = submission_of(
            request,
            epoch,
            tuple(roles),
            attempt=more["attempt"],
            deadline_left_s=more["deadline_s"],
            contract=more["contract"],
            resume=resume,
        )
        self.step(seen.Submitted(link=link, submission=submission))

    def journal(self, data: st.DataObject, lane: int, may_end: bool) -> LaneJournal:
        """Draw how far a lane has come; what the engine says of it is new to the core."""
        ended = may_end and data.draw(seldom(3))
        return LaneJournal(lane=lane, next=data.draw(st.integers(0, 5)), end=END if ended else None)

    @precondition(lambda self: self.engine)
    @rule(data=st.data())
    def engine_steps(self, data: st.DataObject) -> None:
        """The engine makes a step of one batch."""
        drawn = data.draw(st.lists(st.sampled_from(sorted(self.engine)), max_size=6))
        pieces = [self.piece(data, number) for number in drawn if number in self.engine]
        self.step(seen.PiecesMade(pieces=pieces))

    def piece(self, data: st.DataObject, number: int) -> Piece:
        """Draw one piece of an attempt."""
        if data.draw(seldom(20)):
            del self.engine[number]
            return Piece(attempt=number, error=error_for("engine_error"))
        modality = data.draw(st.sampled_from(sorted(self.engine[number])))
        ends = data.draw(seldom(6))
        if ends:
            self.engine[number].discard(modality)
            if not self.engine[number]:
                del self.engine[number]
        units = data.draw(st.integers(0, 4))
        text = "x" * data.draw(st.integers(0, 30)) if modality is Modality.TEXT else ""
        return Piece(
            attempt=number, modality=modality, units=units, text=text, end=END if ends else None
        )

    @precondition(lambda self: self.aborted & set(self.engine))
    @rule(data=st.data())
    def engine_answers_an_abort(self, data: st.DataObject) -> None:
        """The engine stops what it was told to stop."""
        number = data.draw(st.sampled_from(sorted(self.aborted & set(self.engine))))
        del self.engine[number]
        self.step(seen.PiecesMade(pieces=[Piece(attempt=number, error=error_for("aborted"))]))

    @precondition(lambda self: self.spoken_of())
    @rule(data=st.data(), units=st.integers(0, 5), size=st.integers(0, 60))
    def grant(self, data: st.DataObject, units: int, size: int) -> None:
        """An orchestrator took something."""
        link, slot = data.draw(self.open_slots())
        heard = self.heard[link, slot]
        heard.units_granted += units
        heard.bytes_granted += size
        grant = Grant(slot, 0, heard.units_granted, heard.bytes_granted)
        self.step(seen.CreditGranted(link=link, grants=[grant]))

    @precondition(lambda self: self.spoken_of())
    @rule(data=st.data(), ahead=st.sampled_from([0, 0, 0, 0, -1, 2]), last=st.booleans())
    def inputs_arrive(self, data: st.DataObject, ahead: int, last: bool) -> None:
        """An orchestrator feeds a slot: in order, again, or with a gap."""
        link, slot = data.draw(self.open_slots())
        heard = self.heard[link, slot]
        pos = max(0, heard.input_next + ahead)
        heard.input_next = max(heard.input_next, pos + 1)
        row = Row(slot, SOURCE, pos, 1, "y", end=END if last else None)
        self.step(seen.InputsArrived(link=link, rows=[row]))

    def open_slots(self) -> st.SearchStrategy[tuple[int, int]]:
        """Choose among the attempts that an orchestrator waits for."""
        return st.sampled_from(self.spoken_of())

    def spoken_of(self) -> list[tuple[int, int]]:
        """Give the attempts on links that are there."""
        attempts = self.core.attempts.spoken_of()
        return sorted((a.link, a.slot) for a in attempts if a.link in self.links)

    @precondition(lambda self: self.spoken_of())
    @rule(data=st.data(), partials=st.booleans())
    def abort(self, data: st.DataObject, partials: bool) -> None:
        """An orchestrator aborts an attempt, perhaps once more; partials need no credit."""
        link, slot = data.draw(self.open_slots())
        self.awaited.add((link, slot))
        if partials:
            self.heard[link, slot].units_granted = self.heard[link, slot].bytes_granted = 1 << 40
        self.step(seen.AbortAsked(link=link, slot=slot, cause="test", partials=partials))

    @precondition(lambda self: self.spoken_of())
    @rule(data=st.data())
    def interact(self, data: st.DataObject) -> None:
        """An orchestrator has another prompt for an attempt."""
        link, slot = data.draw(self.open_slots())
        self.step(seen.InteractAsked(link=link, slot=slot, interaction_id="p", text="x"))

    @precondition(lambda self: self.links)
    @rule(data=st.data(), slot=st.integers(1, 40))
    def abort_anything(self, data: st.DataObject, slot: int) -> None:
        """An orchestrator aborts a slot that may be over or not be there yet."""
        link = data.draw(st.sampled_from(sorted(self.links)))
        self.step(seen.AbortAsked(link=link, slot=slot, cause="test"))

    @precondition(lambda self: self.links)
    @rule(data=st.data(), request=st.sampled_from(["a", "b", "c"]), epoch=st.integers(1, 2))
    def fence(self, data: st.DataObject, request: str, epoch: int) -> None:
        """An orchestrator silences lower epochs."""
        link = data.draw(st.sampled_from(sorted(self.links)))
        self.silence(request, epoch)
        self.refused = False
        self.step(seen.FenceRaised(link=link, request_id=request, epoch=epoch))
        for key, (other, lower) in self.keys.items():
            if not self.refused and other == request and lower < epoch:
                self.heard[key].fenced = True

    @rule(seconds=st.sampled_from([0.1, 0.1, 1.0]))
    def time_passes(self, seconds: float) -> None:
        """The clock moves, and the core is woken where it asked for it."""
        until_s = self.now_s + seconds
        while (due_s := self.core.next_wakeup_s()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            before = due_s
            self.step(seen.Tick(steps=0))
            due_s = self.core.next_wakeup_s()
            assert due_s is None or due_s > before, "a wake-up that changes nothing"
        self.now_s = until_s

    @precondition(lambda self: self.core.state is ProcessState.READY)
    @rule(drain_s=st.sampled_from([0.5, 5.0]), really=seldom(20))
    def drain(self, drain_s: float, really: bool) -> None:
        """The process is told to stop, now and then."""
        if really:
            self.told_to_stop = True
            self.step(seen.DrainAsked(drain_s=drain_s))

    # What always holds.

    @invariant()
    def the_engine_never_has_more_than_its_slots(self) -> None:
        """Those that it was told to stop included."""
        assert len(self.engine) <= SLOTS
        assert 0 <= self.core.slots_free <= SLOTS

    @invariant()
    def nobody_holds_back_more_than_allowed(self) -> None:
        """But for the last piece of an attempt, which the engine had made already."""
        assert all(
            attempt.held_bytes <= OUTBOX_BYTES_MAX
            for attempt in self.core.attempts.spoken_of()
            if attempt.state is State.RUNNING
        )

    @invariant()
    def a_drained_worker_exits(self) -> None:
        """And one that is not drained does not."""
        assert self.exited == (self.told_to_stop and self.core.attempts.open == 0)

    def teardown(self) -> None:
        """In the end everything ends, and nothing is kept of it."""
        self.end_all_calls()
        for number in list(self.engine):
            del self.engine[number]
            code = ErrorCode.ABORTED if number in self.aborted else ErrorCode.ENGINE_ERROR
            error = error_for("aborted" if code is ErrorCode.ABORTED else "engine_error")
            self.step(seen.PiecesMade(pieces=[Piece(attempt=number, error=error)]))
        for (link, slot), heard in list(self.heard.items()):
            if link in self.links:
                heard.units_granted = heard.bytes_granted = 1 << 40
                grant = Grant(slot, 0, heard.units_granted, heard.bytes_granted)
                self.step(seen.CreditGranted(link=link, grants=[grant]))
        self.time_passes(10.0)  # Whom nobody hears is given up.
        for attempt in list(self.core.attempts.spoken_of()):  # Those that still wait for input.
            self.step(seen.AbortAsked(link=attempt.link, slot=attempt.slot, cause="test"))
        for key, heard in self.heard.items():
            assert heard.over or key[0] not in self.links or key in self.silenced, "no end"
            # Its orchestrator holds an engine slot until it hears that it is free.
            answered = heard.over or key in self.unknown
            assert answered or key[0] not in self.links or key not in self.awaited, "no answer"
        assert len(self.core.attempts) == 0
        assert self.core.slots_free == SLOTS
        assert self.core.attempts.open == 0
        self.end_all_calls()
        self.check_all_answered()


TestStageWorkerMachine = StageWorkerMachine.TestCase
