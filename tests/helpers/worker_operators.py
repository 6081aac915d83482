"""Operators around a stage worker's core, and an engine that carries out what they ask."""

# ruff: noqa: D102 -- a rule's name says what it does.

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.stage_worker.core import ProcessState, StageWorker
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from stagemesh.control import (
    TAGS,
    WEIGHTS,
    Answer,
    Call,
    Drain,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    Undrain,
    WakeUp,
)
from stagemesh.outcome import error_for

__all__ = ["Operators"]

CALLS = st.one_of(
    st.sampled_from(PauseMode).map(lambda mode: Pause(mode=mode)),
    st.sampled_from([Resume(), Resume(), ResetCache(), Drain(drain_s=1.0), Undrain(), Undrain()]),
    st.builds(
        Sleep,
        mode=st.sampled_from([PauseMode.ABORT, PauseMode.WAIT]),
        tags=st.sampled_from([(), (WEIGHTS,)]),
    ),
    st.builds(WakeUp, tags=st.sampled_from([(), (WEIGHTS,)])),
)


class Operators(RuleBasedStateMachine):
    """Rules for operators; `told_to_stop` is set once the process is to exit."""

    core: StageWorker
    links: set[int]
    engine: dict[int, object]
    told_to_stop = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[tuple[int, int], Call] = {}
        self.answered: set[tuple[int, int]] = set()
        self.given: do.CallEngine | None = None
        self.asleep: frozenset[str] = frozenset()

    def step(self, event: seen.Event) -> None:
        """Step an event, and what its effects cause."""
        raise AssertionError(event)

    def perform_control(self, effect: do.Effect) -> None:
        """Perform an effect of an operator's call, and check it."""
        match effect:
            case do.CallEngine():
                assert self.given is None, "two calls at once"
                self.given = effect
                if isinstance(effect.call, Sleep):
                    assert not self.engine, "told to sleep while it works"
                    assert not self.asleep & set(effect.call.tags), "told to sleep twice"
                if isinstance(effect.call, WakeUp):
                    assert set(effect.call.tags) <= self.asleep, "told to wake up twice"
            case do.SendControlled(link=link, control_id=control_id):
                assert link in self.links
                assert (link, control_id) in self.asked
                assert (link, control_id) not in self.answered, "answered twice"
                self.answered.add((link, control_id))
            case do.StartAttempt():
                assert not self.asleep, "work while it sleeps"
                assert self.core.state is ProcessState.READY
            case _:
                pass

    @precondition(lambda self: self.links)
    @rule(data=st.data(), call=CALLS, timeout_s=st.sampled_from([0.5, 5.0]))
    def operate(self, data: st.DataObject, call: Call, timeout_s: float) -> None:
        link = data.draw(st.sampled_from(sorted(self.links)))
        key = (link, len(self.asked) + 1)
        self.asked[key] = call
        self.step(seen.ControlAsked(link=link, control_id=key[1], call=call, timeout_s=timeout_s))

    @precondition(lambda self: self.given)
    @rule(fails=st.booleans())
    def engine_answers_a_call(self, fails: bool) -> None:
        assert self.given is not None
        given, self.given = self.given, None
        if not fails and isinstance(given.call, Sleep | WakeUp):
            tags = frozenset(given.call.tags)
            sleeps = isinstance(given.call, Sleep)
            self.asleep = self.asleep | tags if sleeps else self.asleep - tags
        answer = Answer(error=error_for("engine_error") if fails else None)
        self.step(seen.EngineAnswered(number=given.number, answer=answer))

    @rule(number=st.integers(1, 30))
    def engine_answers_what_it_was_not_asked(self, number: int) -> None:
        if self.given is None or self.given.number != number:
            self.step(seen.EngineAnswered(number=number, answer=Answer()))

    @invariant()
    def the_gate_says_what_sleeps(self) -> None:
        assert self.core.gate.asleep == self.asleep <= TAGS

    def end_all_calls(self) -> None:
        """Let the engine answer, until every call is over."""
        while self.given is not None:
            self.engine_answers_a_call(fails=False)

    def check_all_answered(self) -> None:
        for link, number in self.asked.keys() - self.answered:
            assert link not in self.links or self.told_to_stop, f"no answer to {number}"
