"""Other prompts for attempts that run."""

import pytest

from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.core.interactions import WAITING_MAX
from stagemesh.outcome import ErrorCode, error_for
from tests.helpers.worker_core import END, LINK, Stepped, of_kind, submission, text_piece


def ask(stepped: Stepped, name: str = "p", slot: int = 1) -> list[do.Effect]:
    """Let an orchestrator give another prompt."""
    return stepped.step(seen.InteractAsked(link=LINK, slot=slot, interaction_id=name, text="x"))


@pytest.mark.invariant("ORCH-INV-144")
def test_a_prompt_goes_to_the_engine_and_its_answer_to_whoever_gave_it() -> None:
    stepped = Stepped()
    [attempt] = stepped.start()
    assert ask(stepped) == [do.InteractEngine(attempt=attempt, interaction_id="p", text="x")]
    effects = stepped.step(seen.Interacted(attempt=attempt, interaction_id="p", applied_at=3))
    assert effects == [
        do.SendInteracted(link=LINK, slot=1, interaction_id="p", applied_at=3, error=None)
    ]


def test_a_refused_prompt_leaves_its_attempt_alone() -> None:
    stepped = Stepped()
    [attempt] = stepped.start()
    ask(stepped)
    error = error_for("unsupported_value")
    [answer] = stepped.step(seen.Interacted(attempt=attempt, interaction_id="p", error=error))
    assert isinstance(answer, do.SendInteracted)
    assert answer.error == error
    assert of_kind(stepped.pieces(text_piece(attempt, end=END)), do.SendRows)


def test_prompts_wait_for_their_attempt_to_begin() -> None:
    stepped = Stepped()
    [start] = of_kind(stepped.submit(submission()), do.StartAttempt)
    for number in range(WAITING_MAX):
        assert ask(stepped, f"p{number}") == []
    [refused] = of_kind(ask(stepped, "more"), do.SendInteracted)
    assert refused.error is not None
    assert refused.error.code is ErrorCode.OVERLOADED
    given = stepped.step(seen.AttemptStarted(attempt=start.attempt))
    assert [one.interaction_id for one in of_kind(given, do.InteractEngine)] == [
        f"p{number}" for number in range(WAITING_MAX)
    ]


def test_a_prompt_for_what_is_being_stopped_comes_too_late_and_for_nobody_is_unknown() -> None:
    stepped = Stepped()
    [attempt] = stepped.start()
    stepped.step(seen.AbortAsked(link=LINK, slot=1, cause="test"))
    [refused] = of_kind(ask(stepped), do.SendInteracted)
    assert refused.error is not None
    assert refused.error.code is ErrorCode.CONFLICT
    assert ask(stepped, slot=9) == [do.SendUnknown(link=LINK, slot=9)]
    assert ask(stepped, slot=9) == []
    stepped.pieces(text_piece(attempt, end=END))
    assert stepped.step(seen.Interacted(attempt=attempt, interaction_id="p")) == []
