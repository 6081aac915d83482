"""A stage worker's decisions, without I/O: one event in, orders out.

What always holds: an attempt holds an engine slot from its submission until the engine lets go of
it; its orchestrator hears one end of it, last; nothing is sent without credit; and one attempt's
failure changes no other.
"""

from collections.abc import Callable
from typing import Any

from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.core.admission import Admission
from services.stage_worker.core.attempt import Attempt, State
from services.stage_worker.core.contracts import hands_back_at_once
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.epochs import Epochs
from services.stage_worker.core.fences import Recent
from services.stage_worker.core.interactions import Interactions
from services.stage_worker.core.limits import Identity, Limits
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.orphans import Orphans
from services.stage_worker.core.progress import Progress
from services.stage_worker.core.refusals import ProcessState, refusal
from services.stage_worker.core.steering import Steering
from services.stage_worker.core.table import AttemptTable
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.control import Gate
from stagemesh.link.core import Row, Step
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["StageWorker"]


class StageWorker:
    """The attempts of one worker, on all its links. Feed it events in the order they happen."""

    def __init__(self, identity: Identity, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._state = ProcessState.STARTING
        self._slots = 0
        self._contract = ResumeContract.NONE
        self._windows: dict[int, tuple[int, int]] = {}
        self._attempts = AttemptTable()
        self._orders = Orders()
        self._endings = Endings(identity, self._attempts, self._orders)
        self._admission = Admission(self._attempts, self._endings, self._orders, self._limits)
        self._steering = Steering(
            self._attempts,
            self._endings,
            self._orders,
            calls_max=self._limits.controls_max,
            loses_nothing=self._loses_nothing,
        )
        self._epochs = Epochs(self._orders)
        self._orphans = Orphans(self._limits.orphan_s)
        self._answered: Recent[tuple[int, int]] = Recent(self._limits.tombstones_max)
        self._progress = Progress(self._limits.stall_s)
        self._interactions = Interactions(self._orders)
        self._drain_until_s: float | None = None
        self._exiting = False
        self.stray_pieces = 0
        """Pieces of the engine for attempts that it had already let go of."""
        self.repeated_inputs = 0
        """Inputs that were dropped because they had come before."""
        self._steps: dict[type[Any], Callable[[Any, float], None]] = {
            seen.PiecesMade: self._pieces_made,
            seen.CreditGranted: self._credit_granted,
            seen.InputsArrived: self._inputs_arrived,
            seen.InteractAsked: self._interact_asked,
            seen.Interacted: self._interacted,
            seen.InputTaken: self._input_taken,
            seen.Submitted: self._submitted,
            seen.SubmissionRefused: self._endings.refuse_all,
            seen.AttemptStarted: self._attempt_started,
            seen.InputClosed: self._input_closed,
            seen.NothingToDo: self._nothing_to_do,
            seen.AttemptBroke: self._attempt_broke,
            seen.AbortAsked: self._abort_asked,
            seen.FenceRaised: self._fence_raised,
            seen.RenewAsked: self._epochs.renew,
            seen.ReleaseAsked: self._epochs.release,
            seen.LinkAttached: self._link_attached,
            seen.LinkLost: self._link_lost,
            seen.ControlAsked: self._control_asked,
            seen.ControlRefused: self._control_refused,
            seen.EngineAnswered: self._engine_answered,
            seen.EngineLoaded: self._engine_loaded,
            seen.EngineBroke: self._engine_broke,
            seen.DrainAsked: self._drain_asked,
            seen.Tick: self._tick,
        }

    @property
    def state(self) -> ProcessState:
        """Whether it takes attempts."""
        return self._steering.state if self._state is ProcessState.READY else self._state

    @property
    def gate(self) -> Gate:
        """What operators have closed."""
        return self._steering.gate

    @property
    def attempts(self) -> AttemptTable:
        """Its attempts, for reports; only the worker itself changes them."""
        return self._attempts

    @property
    def slots_free(self) -> int:
        """How many more attempts the engine has room for."""
        return self._slots - self._attempts.occupied

    def request_of(self, attempt: int) -> str | None:
        """Tell whose request an attempt serves; None if nobody waits for its outputs."""
        found = self._attempts.get(attempt)
        return found.submission.request_id if found and found.state is State.RUNNING else None

    def step(self, event: seen.Event, now_s: float) -> list[do.Effect]:
        """Take one event; return what the shell must do, in order."""
        self._steps[type(event)](event, now_s)
        self._steering.settle()
        if self._drain_until_s is not None and not self._attempts.open:
            self._exit(None)
        return self._orders.take()

    def next_wakeup_s(self) -> float | None:
        """Tell when `Tick` is due at the latest."""
        times = (
            self._attempts.next_deadline_s(),
            self._progress.next_check_s,
            self._orphans.next_s,
            self._steering.next_s,
            None if self._exiting else self._drain_until_s,
        )
        return min((time_s for time_s in times if time_s is not None), default=None)

    # What the engine does.

    def _pieces_made(self, event: seen.PiecesMade, now_s: float) -> None:
        """Turn one engine step into rows, one list for each link."""
        get = self._attempts.get
        for piece in event.pieces:
            attempt = get(piece.attempt)
            if attempt is None or not attempt.in_engine:
                self.stray_pieces += 1
                self._drop_bytes(piece)
            elif attempt.state is not State.RUNNING or piece.error is not None:
                self._last_piece(attempt, piece)
            else:
                ready = attempt.take(piece, now_s)
                if ready:
                    self._orders.rows(attempt.link, ready)
                if attempt.lanes_open == 0:
                    self._endings.engine_let_go(attempt)
                elif attempt.lanes_awaited == 0:
                    self._endings.finish(attempt)
                elif not ready and attempt.held_bytes > self._limits.outbox_bytes_max:
                    self._endings.fail(attempt, error_for("slow_consumer"))
        self._progress.moved(now_s)
        if self._state is ProcessState.STALLED:
            self._become(ProcessState.READY)

    def _last_piece(self, attempt: Attempt, piece: Piece) -> None:
        """Take a piece that brings an error, or that comes after the attempt was stopped."""
        attempt.discard(piece)
        self._drop_bytes(piece)
        if piece.error is not None or attempt.lanes_open == 0:
            self._endings.engine_let_go(attempt, piece.error)

    def _drop_bytes(self, piece: Piece) -> None:
        """Drop what was put away for a piece that goes nowhere."""
        handle = piece.body.handle if piece.body is not None else None
        if handle is not None:
            self._endings.drop_handles(handle.request_id, (handle.handle_id,))

    def _engine_loaded(self, event: seen.EngineLoaded, now_s: float) -> None:
        self._slots = event.slots
        self._contract = event.contract
        self._steering.loaded(event.control)
        if self._state is ProcessState.STARTING:
            self._become(ProcessState.READY)

    def _engine_broke(self, event: seen.EngineBroke, now_s: float) -> None:
        """Fail everything: the process is of no more use."""
        for attempt in self._attempts.spoken_of():
            attempt.in_engine = False
            self._endings.fail(attempt, event.error)
        self._exit(event.error)

    # What orchestrators do.

    def _link_attached(self, event: seen.LinkAttached, now_s: float) -> None:
        self._windows[event.link] = (event.window_units, event.window_bytes)
        if self._drain_until_s is not None:
            left_s = max(0.0, self._drain_until_s - now_s)
            self._orders.add(do.SayGoAway(link=event.link, reason="draining", drain_s=left_s))

    def _link_lost(self, event: seen.LinkLost, now_s: float) -> None:
        del self._windows[event.link]
        self._steering.lose(event.link)
        for attempt in self._attempts.of_link(event.link):
            self._abandon(attempt, now_s)

    def _abandon(self, attempt: Attempt, now_s: float) -> None:
        """Stop telling anybody of an attempt; what the engine has of it goes on for a while."""
        if attempt.state is State.ORPHANED:
            return
        if attempt.state is State.RUNNING and self._drain_until_s is None:
            attempt.move(State.ORPHANED)
            self._orphans.add(attempt.number, now_s)
        else:
            self._endings.silence(attempt)

    def _submitted(self, event: seen.Submitted, now_s: float) -> None:
        submission = event.submission
        if self._epochs.admit(event.link, submission.request_id, submission.epoch, now_s):
            self._admission.take(
                event.link,
                submission,
                window=self._windows[event.link],
                closed=self._closed,
                now_s=now_s,
            )

    def _closed(self, attempts: int) -> ErrorInfo | None:
        """Say what is against so many attempts more."""
        return refusal(self.state, room=self._admission.has_room(attempts, self.slots_free))

    def _inputs_arrived(self, event: seen.InputsArrived, now_s: float) -> None:
        """Give each attempt its rows, in their order."""
        accepted: dict[int, list[Row]] = {}
        for row in event.rows:
            attempt = self._attempts.at(event.link, row.slot)
            if attempt is None:
                self._say_unknown(event.link, row.slot)
                continue
            verdict = attempt.check(row)
            if verdict is Step.ACCEPT:
                accepted.setdefault(attempt.number, []).append(row)
            elif verdict is Step.DROP:
                self.repeated_inputs += 1
            else:
                self._endings.fail(attempt, attempt.input_error(row))
        for number, rows in accepted.items():
            taker = self._attempts.get(number)
            if taker is not None and taker.state in {State.WAITING, State.RUNNING}:
                self._orders.add(do.FeedAttempt(attempt=number, rows=rows))

    def _credit_granted(self, event: seen.CreditGranted, now_s: float) -> None:
        for grant in event.grants:
            attempt = self._attempts.at(event.link, grant.slot)
            if attempt is None or attempt.state in {State.STOPPING, State.ORPHANED}:
                continue
            ready = attempt.granted(grant)
            if ready:
                self._orders.rows(event.link, ready)
            if attempt.state is State.FLUSHING:
                self._endings.flush(attempt)

    def _interact_asked(self, event: seen.InteractAsked, now_s: float) -> None:
        if (attempt := self._attempts.at(event.link, event.slot)) is None:
            self._say_unknown(event.link, event.slot)
        elif attempt.state is not State.ORPHANED:
            self._interactions.asked(attempt, event)

    def _interacted(self, event: seen.Interacted, now_s: float) -> None:
        attempt = self._attempts.get(event.attempt)
        if attempt is not None and not attempt.ended:
            self._interactions.answered(attempt, event)

    def _abort_asked(self, event: seen.AbortAsked, now_s: float) -> None:
        attempt = self._attempts.at(event.link, event.slot)
        if attempt is not None:
            self._endings.abort(attempt, partials=event.partials)
            return
        self._say_unknown(event.link, event.slot)
        self._admission.aborted(event.link, event.slot)

    def _fence_raised(self, event: seen.FenceRaised, now_s: float) -> None:
        if not self._epochs.admit(event.link, event.request_id, event.epoch, now_s):
            return
        attempts = self._attempts.below(event.request_id, event.epoch)
        self._epochs.claim(event, {one.link for one in attempts if one.state is State.RUNNING})
        for attempt in attempts:
            self._abandon(attempt, now_s)

    # What operators do.

    def _control_asked(self, event: seen.ControlAsked, now_s: float) -> None:
        starting = self._state is ProcessState.STARTING
        reason = "draining" if self._drain_until_s is not None else "no_replica" if starting else ""
        self._steering.ask(event, now_s, closed=reason)

    def _control_refused(self, event: seen.ControlRefused, now_s: float) -> None:
        self._steering.refuse(event.link, event.control_id, event.error)

    def _engine_answered(self, event: seen.EngineAnswered, now_s: float) -> None:
        self._steering.answered(event.number, event.answer)
        self._progress.moved(now_s)
        self._progress.watch(now_s)

    def _loses_nothing(self, attempt: Attempt) -> bool:
        """Whether an attempt may be handed back at once."""
        orphaned = attempt.state is State.ORPHANED
        return orphaned or hands_back_at_once(attempt, self._contract)

    # What the shell tells of an attempt's input.

    def _attempt_started(self, event: seen.AttemptStarted, now_s: float) -> None:
        attempt = self._attempts.get(event.attempt)
        if attempt is not None:
            attempt.started(now_s, event.transfer_s)
            self._interactions.started(attempt)

    def _input_taken(self, event: seen.InputTaken, now_s: float) -> None:
        attempt = self._attempts.get(event.attempt)
        if attempt is None or attempt.ended:
            return
        grant = attempt.took(event.lane, event.units, event.bytes)
        if grant is not None:
            self._orders.grant(attempt.link, grant)

    def _input_closed(self, event: seen.InputClosed, now_s: float) -> None:
        attempt = self._attempts.get(event.attempt)
        if attempt is not None:
            attempt.input_closed = True
            self._progress.watch(now_s)

    def _nothing_to_do(self, event: seen.NothingToDo, now_s: float) -> None:
        attempt = self._attempts.get(event.attempt)
        if attempt is None or attempt.ended:
            return
        if attempt.goes_on and attempt.submission.contract is not ResumeContract.PER_INPUT:
            message = "There was output before, and now there is not even input."
            self._endings.fail(attempt, error_for("replay_diverged", message))
            return
        ready = attempt.end_empty(now_s)
        if ready:
            self._orders.rows(attempt.link, ready)
        self._endings.flush(attempt)

    def _attempt_broke(self, event: seen.AttemptBroke, now_s: float) -> None:
        attempt = self._attempts.get(event.attempt)
        if attempt is None or attempt.ended:
            return
        if event.handle_id:
            self._orders.add(
                do.SendHandleLost(link=attempt.link, slot=attempt.slot, handle_id=event.handle_id)
            )
        self._endings.fail(attempt, event.error)

    # Time, and the end.

    def _tick(self, event: seen.Tick, now_s: float) -> None:
        for attempt in self._attempts.late(now_s):
            self._endings.fail(attempt, error_for("deadline_exceeded"))
        for number in self._orphans.due(now_s):
            orphan = self._attempts.get(number)
            if orphan is not None and not orphan.ended:
                self._endings.silence(orphan)
        self._steering.late(now_s)
        busy = self._attempts.busy and not self._steering.still
        stalled = self._progress.look(event.steps, busy=busy, now_s=now_s)
        if stalled and self._state is ProcessState.READY:
            self._become(ProcessState.STALLED)
        elif not stalled and self._state is ProcessState.STALLED:
            self._become(ProcessState.READY)
        if self._drain_until_s is not None and self._drain_until_s <= now_s:
            for attempt in self._attempts.spoken_of():
                self._endings.hand_back(attempt)

    def _drain_asked(self, event: seen.DrainAsked, now_s: float) -> None:
        if self._drain_until_s is not None:
            return
        self._drain_until_s = now_s + event.drain_s
        self._become(ProcessState.DRAINING)
        for link in self._windows:
            self._orders.add(do.SayGoAway(link=link, reason="draining", drain_s=event.drain_s))
        for attempt in self._attempts.spoken_of():
            if self._loses_nothing(attempt):
                self._endings.hand_back(attempt)

    def _exit(self, error: ErrorInfo | None) -> None:
        if self._exiting:
            return
        self._exiting = True
        if self._state is not ProcessState.DRAINING:
            self._become(ProcessState.DRAINING)
        self._orders.add(do.Exit(error=error))

    def _become(self, state: ProcessState) -> None:
        self._state = state
        self._orders.add(do.ReportState())

    def _say_unknown(self, link: int, slot: int) -> None:
        if self._answered.add((link, slot)):
            self._orders.add(do.SendUnknown(link=link, slot=slot))
