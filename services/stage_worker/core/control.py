"""Control calls: what operators ask of this worker, one answer for each.

Calls for the engine go to it one at a time, in order. A pause or a sleep first waits for the
attempts that run; until then a later one, or a resume, may take its place. What cannot be done in
time is undone where nothing has happened yet, so that a call that failed leaves the worker as it
was. What the engine does after its time still counts: the worker's state is always the truth.
"""

from collections import deque
from dataclasses import dataclass
from itertools import count
from math import inf

from services.stage_worker.core.attempt import State
from services.stage_worker.core.effects import CallEngine, ReportState, SendControlled
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.gate import Gate
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.table import AttemptTable
from stagemesh.control import (
    Answer,
    Call,
    CollectiveCall,
    ControlKind,
    ControlSupport,
    ListAdapters,
    LoadAdapter,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UnloadAdapter,
    WakeUp,
)
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["Controls"]

_KINDS = {
    ResetCache: ControlKind.RESET_CACHE,
    LoadAdapter: ControlKind.ADAPTERS,
    UnloadAdapter: ControlKind.ADAPTERS,
    ListAdapters: ControlKind.ADAPTERS,
    StartProfile: ControlKind.PROFILE,
    StopProfile: ControlKind.PROFILE,
}

_DONE = Answer()


@dataclass(slots=True, eq=False)
class _Asked:
    """One call; `link` is 0 once nobody waits for its answer."""

    link: int
    control_id: int
    call: Call
    until_s: float
    opens: bool = False
    """It is the last word on the gate, which opens when it has been carried out."""
    opens_again: bool = False
    """The gate was open before it, and opens again if it comes to nothing."""
    number: int = 0


class Controls:
    """Decides what becomes of calls; the gate, and what is closed by it, are its work."""

    def __init__(
        self,
        attempts: AttemptTable,
        endings: Endings,
        orders: Orders,
        gate: Gate,
        *,
        calls_max: int,
    ) -> None:
        self._attempts = attempts
        self._endings = endings
        self._orders = orders
        self._gate = gate
        self._calls_max = calls_max
        self._support = ControlSupport()
        self._waiting: _Asked | None = None
        self._queue: deque[_Asked] = deque()
        self._turn: _Asked | None = None
        self._numbers = count(1)

    @property
    def still(self) -> bool:
        """Whether the engine makes no step by an operator's will."""
        return self._gate.frozen or self._freezes

    @property
    def next_s(self) -> float | None:
        """When the first call runs out of time."""
        return min((asked.until_s for asked in self._open()), default=None)

    def loaded(self, support: ControlSupport) -> None:
        """Note what the engine carries out."""
        self._support = support

    def ask(self, link: int, control_id: int, call: Call, until_s: float) -> None:
        """Take a call of an orchestrator; `Drain` and `Undrain` are somebody else's."""
        asked = _Asked(link, control_id, call, until_s)
        error = self._against(call)
        if error is not None:
            self._answer(asked, Answer(error=error))
            return
        match call:
            case Pause(mode=mode) | Sleep(mode=mode):
                undoes = self._waiting is not None and self._waiting.opens_again
                self._take_place(asked)
                asked.opens_again |= undoes
                self._close(mode)
                if mode is not PauseMode.KEEP:
                    self._wait(asked, mode)
                elif self._gate.value.asleep or self._sleeps:
                    self._answer(asked, _DONE)  # Nothing runs there that could be frozen.
                else:
                    self._give_engine(asked)
            case Resume():
                self._resume(asked)
            case WakeUp() if self._waiting is not None and isinstance(self._waiting.call, Sleep):
                self._take_place(asked)
                self._give_engine(asked)
            case _:
                self._give_engine(asked)

    def settle(self) -> None:
        """Go on with the call that waits for attempts, if none is left."""
        asked = self._waiting
        if asked is None or self._attempts.occupied:
            return
        self._waiting = None
        if isinstance(asked.call, Sleep):
            self._give_engine(asked)
        else:
            self._answer(asked, _DONE)

    def answered(self, number: int, answer: Answer) -> None:
        """Take what came of the call that the engine has, and give it the next."""
        asked = self._turn
        if asked is None or asked.number != number:
            return
        self._turn = None
        if answer.error is None:
            self._apply(asked)
        else:
            self._undo(asked)
        self._answer(asked, answer)
        self._next()

    def late(self, now_s: float) -> None:
        """Answer the calls whose time is up; what the engine has goes on there."""
        for asked in [asked for asked in self._open() if asked.until_s <= now_s]:
            self._answer(asked, Answer(error=error_for("deadline_exceeded")))
            asked.until_s = inf
            if asked is self._waiting:
                self._waiting = None
                self._undo(asked)
            elif asked is not self._turn:
                self._queue.remove(asked)
                self._undo(asked)

    def lose(self, link: int) -> None:
        """Note that nobody waits any more for the answers on a link; the calls go on."""
        for asked in (self._waiting, self._turn, *self._queue):
            if asked is not None and asked.link == link:
                asked.link = 0

    def _against(self, call: Call) -> ErrorInfo | None:
        """Say why a call cannot be carried out."""
        support = self._support
        if len(self._queue) >= self._calls_max:
            return error_for("queue_full", "Too many control calls wait.", retry_after_s=1.0)
        match call:
            case Pause(mode=PauseMode.KEEP):
                return self._unless(ControlKind.KEEP in support.kinds, "freeze attempts", "mode")
            case Sleep() | WakeUp():
                return self._against_sleep(call)
            case CollectiveCall(name=name) if name not in support.collective_calls:
                known = ", ".join(sorted(support.collective_calls)) or "none"
                return error_for(
                    "invalid_value", f"{name!r} is not allowed here; {known} is.", param="name"
                )
            case Resume() if self._gate.value.asleep or self._sleeps:
                return error_for("conflict", "It is asleep, and has to be woken up first.")
            case _:
                kind = _KINDS.get(type(call))
                able = kind is None or kind in support.kinds
                return self._unless(able, "do this", "")

    def _against_sleep(self, call: Sleep | WakeUp) -> ErrorInfo | None:
        support = self._support
        if ControlKind.SLEEP not in support.kinds:
            return self._unless(False, "sleep", "")
        if beyond := set(call.tags) - support.sleep_tags:
            known = ", ".join(sorted(support.sleep_tags))
            return error_for(
                "invalid_value", f"{min(beyond)!r} cannot sleep here; {known} can.", param="tags"
            )
        if isinstance(call, Sleep):
            if call.mode is PauseMode.KEEP:
                message = "What runs cannot be kept: it is aborted or waited for."
                return error_for("invalid_value", message, param="mode")
            return self._unless(call.level == 1, f"sleep at level {call.level}", "level")
        return None

    @staticmethod
    def _unless(able: bool, what: str, param: str) -> ErrorInfo | None:
        if able:
            return None
        return error_for("unsupported_value", f"This engine cannot {what}.", param=param)

    @property
    def _sleeps(self) -> bool:
        """Whether the engine is about to sleep."""
        return any(isinstance(asked.call, Sleep) for asked in self._for_engine())

    @property
    def _freezes(self) -> bool:
        """Whether the engine is about to be frozen, and not to go on."""
        orders = [a.call for a in self._for_engine() if isinstance(a.call, Pause | Resume)]
        return bool(orders) and isinstance(orders[-1], Pause)

    def _for_engine(self) -> list[_Asked]:
        return [asked for asked in (self._turn, *self._queue) if asked is not None]

    def _open(self) -> list[_Asked]:
        """Give the calls that somebody waits for, or that have not come to the engine."""
        everything = [*self._for_engine(), self._waiting]
        return [a for a in everything if a is not None and a.until_s != inf]

    def _take_place(self, asked: _Asked) -> None:
        """Answer the call that still waits for attempts: a later one comes in its place."""
        asked.opens_again = self._gate.value.paused is None
        before, self._waiting = self._waiting, None
        if before is not None:
            message = "A later call came in its place."
            self._answer(before, Answer(error=error_for("conflict", message)))

    def _close(self, mode: PauseMode) -> None:
        """Take nothing new; whatever came before has no say any more in what opens the gate."""
        for earlier in self._for_engine():
            earlier.opens = earlier.opens_again = False
        self._gate.pause(mode)
        self._orders.add(ReportState())

    def _wait(self, asked: _Asked, mode: PauseMode) -> None:
        """Wait for what runs, which must be able to; or abort it first."""
        if self.still:
            self._give_engine(_Asked(0, 0, Resume(), inf))
        if mode is PauseMode.ABORT:
            for attempt in list(self._attempts.spoken_of()):
                if attempt.state in {State.WAITING, State.RUNNING, State.ORPHANED}:
                    self._endings.fail(attempt, error_for("stopped_by_operator"))
        self._waiting = asked

    def _resume(self, asked: _Asked) -> None:
        self._take_place(asked)
        asked.opens, asked.opens_again = True, False
        if self.still:
            self._give_engine(asked)
        else:
            self._apply(asked)
            self._answer(asked, _DONE)

    def _give_engine(self, asked: _Asked) -> None:
        self._queue.append(asked)
        self._next()

    def _next(self) -> None:
        """Give the engine its next call, unless it has one; what changes nothing is skipped."""
        while self._turn is None and self._queue:
            asked = self._queue.popleft()
            call = self._cut(asked.call)
            if call is None:
                self._apply(asked)
                self._answer(asked, _DONE)
                continue
            asked.number = next(self._numbers)
            self._turn = asked
            self._orders.add(CallEngine(number=asked.number, call=call))

    def _cut(self, call: Call) -> Call | None:
        """Leave out what is so already; None if nothing is left to do."""
        asleep = self._gate.value.asleep
        match call:
            case Pause():
                return None if self._gate.frozen else call
            case Sleep(tags=tags):
                left = (frozenset(tags) or self._support.sleep_tags) - asleep
                return Sleep(mode=call.mode, level=call.level, tags=_sorted(left)) if left else None
            case WakeUp(tags=tags):
                left = (frozenset(tags) or asleep) & asleep
                return WakeUp(tags=_sorted(left)) if left else None
            case _:
                return call

    def _apply(self, asked: _Asked) -> None:
        """Note what is so now."""
        before = self._gate.value
        match asked.call:
            case Pause(mode=PauseMode.KEEP):
                self._gate.frozen = True
            case Resume():
                self._gate.frozen = False
                if asked.opens:
                    self._gate.resume()
            case Sleep(tags=tags):
                self._gate.sleep(frozenset(tags) or self._support.sleep_tags)
            case WakeUp(tags=tags):
                self._gate.wake_up(frozenset(tags) or before.asleep)
            case _:
                return
        if self._gate.value != before:
            self._orders.add(ReportState())

    def _undo(self, asked: _Asked) -> None:
        """Open the gate again that a call closed which came to nothing."""
        if asked.opens_again:
            self._gate.resume()
            self._orders.add(ReportState())

    def _answer(self, asked: _Asked, answer: Answer) -> None:
        if asked.link:
            self._orders.add(
                SendControlled(link=asked.link, control_id=asked.control_id, answer=answer)
            )
            asked.link = 0


def _sorted(tags: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(tags))
