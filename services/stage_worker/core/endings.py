"""How attempts end: once for their orchestrator, and once for the engine."""

import msgspec

from services.stage_worker.core.attempt import Attempt, State
from services.stage_worker.core.effects import (
    AbortEngine,
    ForgetAttempt,
    ReleasePayloads,
    SendHandBack,
    SendTerminal,
)
from services.stage_worker.core.events import SubmissionRefused
from services.stage_worker.core.limits import Identity
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.refusals import outcome_for
from services.stage_worker.core.submission import RoleSpec, Submission
from services.stage_worker.core.table import AttemptTable
from stagemesh.outcome import ErrorCode, ErrorInfo, Outcome, Terminal, error_for

__all__ = ["Endings"]


class Endings:
    """Ends attempts, and says so."""

    def __init__(self, identity: Identity, attempts: AttemptTable, orders: Orders) -> None:
        self._identity = identity
        self._attempts = attempts
        self._orders = orders

    def refuse(self, link: int, submission: Submission, role: RoleSpec, error: ErrorInfo) -> None:
        """Answer a role that does not become an attempt."""
        aborted = error.code is ErrorCode.ABORTED
        terminal = Terminal(
            outcome=Outcome.CANCELLED if aborted else Outcome.REJECTED,
            error=self._named(error, submission),
        )
        self._orders.add(SendTerminal(link=link, slot=role.slot, terminal=terminal))

    def refuse_all(self, event: SubmissionRefused, now_s: float) -> None:
        """Answer every role of a submission that could not be read; the time does not matter."""
        del now_s
        for role in event.submission.roles:
            self.refuse(event.link, event.submission, role, event.error)

    def abort(self, attempt: Attempt, *, partials: bool = False) -> None:
        """Stop an attempt as asked; the answer waits until the engine has let go of it.

        With `partials` what waits for credit goes first, without.
        """
        if partials and attempt.state in {State.RUNNING, State.FLUSHING}:
            held = attempt.release()
            if held:
                self._orders.rows(attempt.link, held)
            if attempt.state is State.FLUSHING:
                self.flush(attempt)
                return
        if attempt.state is State.STOPPING:
            return
        if attempt.state is State.ORPHANED:
            self._stop_engine(attempt)
            self._end(attempt, State.CANCELLED, self._terminal(attempt, error_for("aborted")))
        elif attempt.in_engine:
            attempt.move(State.STOPPING)
            self._orders.add(AbortEngine(attempt=attempt.number))
        else:
            self._end(attempt, State.CANCELLED, self._terminal(attempt, error_for("aborted")))

    def fail(self, attempt: Attempt, error: ErrorInfo) -> None:
        """End an attempt at once, whatever waits; the engine stops it in its own time."""
        if attempt.ended:
            return
        if attempt.state is State.ORPHANED:
            self.silence(attempt)
            return
        terminal = self._terminal(attempt, error)
        self._stop_engine(attempt)
        cancelled = terminal.outcome is Outcome.CANCELLED
        self._end(attempt, State.CANCELLED if cancelled else State.FAILED, terminal)

    def silence(self, attempt: Attempt) -> None:
        """End an attempt whose orchestrator is gone or fenced: nobody is told."""
        self._stop_engine(attempt)
        self._end(attempt, State.CANCELLED, None)

    def hand_back(self, attempt: Attempt) -> None:
        """Give an attempt up in good order: it goes on elsewhere after what was sent of it."""
        if attempt.state is State.STOPPING:
            self._end(attempt, State.CANCELLED, self._terminal(attempt, error_for("aborted")))
        elif attempt.state is State.ORPHANED:
            self.silence(attempt)
        else:
            self._stop_engine(attempt)
            self._orders.add(SendHandBack(link=attempt.link, slot=attempt.slot))
            self._end(attempt, State.HANDED_BACK, None)

    def engine_let_go(self, attempt: Attempt, error: ErrorInfo | None = None) -> None:
        """Free the engine slot; end the attempt now, or when its last output had credit."""
        attempt.in_engine = False
        if attempt.state is State.STOPPING:
            self._end(attempt, State.CANCELLED, self._terminal(attempt, error_for("aborted")))
        elif attempt.state is State.ORPHANED:
            self._end(attempt, State.CANCELLED, None)
        elif attempt.ended:
            self._attempts.let_go(attempt)
        elif attempt.state is not State.FLUSHING:
            attempt.terminal = None if error is None else self._terminal(attempt, error)
            self.flush(attempt)

    def finish(self, attempt: Attempt) -> None:
        """End an attempt that owes nothing more: what the engine still makes of it was heard."""
        self._stop_engine(attempt)
        self.flush(attempt)

    def drop_handles(self, request_id: str, handle_ids: tuple[str, ...]) -> None:
        """Drop bytes of which no orchestrator was told: none will order their release."""
        self._orders.add(ReleasePayloads(request_id=request_id, handle_ids=handle_ids))

    def flush(self, attempt: Attempt) -> None:
        """Wait until the last output had credit, then end."""
        if attempt.state is not State.FLUSHING:
            attempt.move(State.FLUSHING)
        if not attempt.flushed:
            return
        terminal = attempt.terminal
        if terminal is None:
            self._end(attempt, State.FINISHED, None)
        else:
            cancelled = terminal.outcome is Outcome.CANCELLED
            self._end(attempt, State.CANCELLED if cancelled else State.FAILED, terminal)

    def _stop_engine(self, attempt: Attempt) -> None:
        if attempt.in_engine and attempt.state not in {State.STOPPING, State.FLUSHING}:
            self._orders.add(AbortEngine(attempt=attempt.number))

    def _end(self, attempt: Attempt, state: State, terminal: Terminal | None) -> None:
        attempt.move(state)
        if terminal is not None:
            order = SendTerminal(link=attempt.link, slot=attempt.slot, terminal=terminal)
            self._orders.add(order)
        self._orders.add(ForgetAttempt(attempt=attempt.number, end=state.value))
        if attempt.untold:
            self.drop_handles(attempt.submission.request_id, attempt.untold)
        self._attempts.let_go(attempt)

    def _terminal(self, attempt: Attempt, error: ErrorInfo) -> Terminal:
        started = attempt.state is not State.WAITING
        return Terminal(
            outcome=outcome_for(error.code, started=started),
            error=self._named(error, attempt.submission),
            usage=attempt.usage(),
        )

    def _named(self, error: ErrorInfo, submission: Submission) -> ErrorInfo:
        """Say in an error where it happened."""
        return msgspec.structs.replace(
            error,
            stage=submission.stage_name,
            pool=self._identity.pool,
            replica_id=self._identity.replica_id,
            attempt=submission.attempt,
        )
