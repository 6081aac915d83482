"""A worker's core that operators steer, with an engine that a test answers for."""

from services.stage_worker.core import ProcessState
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from stagemesh.control import TAGS, Answer, Call, ControlKind, ControlSupport
from stagemesh.outcome import ErrorCode, ErrorInfo, Outcome, error_for
from tests.helpers.worker_core import LINK, Stepped, of_kind, submission, terminal_of

__all__ = ["ALL", "Steered"]

ALL = ControlSupport(
    kinds=frozenset(ControlKind), sleep_tags=TAGS, collective_calls=frozenset({"state"})
)


class Steered(Stepped):
    """A ready core whose engine carries out every call, when `carry_out` says so."""

    def __init__(self, support: ControlSupport = ALL) -> None:
        super().__init__()
        self.step(seen.EngineLoaded(slots=4, contract=self.contract, control=support))
        self.asked = 0
        self.answers: dict[int, ErrorInfo | None] = {}
        self.given: list[tuple[int, Call]] = []

    def ask(self, call: Call, *, timeout_s: float = 30.0, link: int = LINK) -> int:
        """Make a call; give its number."""
        self.asked += 1
        self.note(
            self.step(
                seen.ControlAsked(link=link, control_id=self.asked, call=call, timeout_s=timeout_s)
            )
        )
        return self.asked

    def note(self, effects: list[do.Effect]) -> list[do.Effect]:
        """Keep what effects say of calls."""
        for order in of_kind(effects, do.CallEngine):
            self.given.append((order.number, order.call))
        for answer in of_kind(effects, do.SendControlled):
            assert answer.control_id not in self.answers, "answered twice"
            self.answers[answer.control_id] = answer.answer.error
        return effects

    def carry_out(self, reason: str = "") -> Call:
        """Let the engine answer the one call that it has; with a reason it failed."""
        (number, call) = self.given.pop(0)
        error = error_for(reason) if reason else None
        answered = seen.EngineAnswered(number=number, answer=Answer(error=error))
        self.note(self.step(answered))
        return call

    def refuses(self, slot: int) -> ErrorCode:
        """Submit an attempt that it must refuse; give the code."""
        outcome, code = terminal_of(self.submit(submission(request_id=f"r{slot}", slots=(slot,))))
        assert outcome is Outcome.REJECTED
        return code

    def wait(self, seconds: float) -> list[do.Effect]:
        """Let time pass."""
        self.now_s += seconds
        return self.note(self.step(seen.Tick(steps=0)))

    def state(self) -> ProcessState:
        """What every orchestrator is told."""
        return self.core.state

    def reason(self, control_id: int) -> str:
        """Give the reason for which a call failed; empty if it was carried out.

        Raises:
            KeyError: If it was not answered.
        """
        error = self.answers[control_id]
        return error.reason if error else ""
