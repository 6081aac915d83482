"""Other prompts for what is being made."""

import msgspec
import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.interactions import ID_CHARS_MAX, PROMPTS_MAX, TEXT_CHARS_MAX
from services.orchestrator.core.replicas import WorkerCard, WorkerState
from stagemesh.link.core import Row
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.core_stage import CoreStage, make_request, of_kind


def painting(contract: ResumeContract = ResumeContract.TOKENS) -> tuple[CoreStage, int]:
    """Make a core with one open request, whose replica takes other prompts; give its link."""
    stage = CoreStage()
    attached = ev.ReplicaAttached(
        link=50, pool="thinker", replica_id="t", incarnation=1,
        card=WorkerCard(slots=4, resume_contract=contract, deterministic=True, interactions=True),
        state=WorkerState.READY, window_units=64, window_bytes=1 << 20,
    )  # fmt: skip
    stage.do(attached)
    stage.do(msgspec.structs.replace(attached, link=51, replica_id="u"))
    _, effects = stage.open(make_request("echo"))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    return stage, submit.link


def ask(stage: CoreStage, name: str = "p", text: str = "x") -> list[fx.Effect]:
    return stage.do(ev.InteractAsked(link=CoreStage.CLIENT, slot=1, interaction_id=name, text=text))


def code_of(effects: list[fx.Effect]) -> tuple[ErrorCode, str]:
    (answer,) = of_kind(effects, fx.AnswerInteraction)
    assert answer.error is not None
    return answer.error.code, answer.error.param


@pytest.mark.invariant("ORCH-INV-144")
def test_an_error_stays_with_its_prompt() -> None:
    stage, link = painting()
    assert code_of(ask(stage, "")) == (ErrorCode.INVALID_ARGUMENT, "interact.interaction_id")
    long = "i" * (ID_CHARS_MAX + 1)
    assert code_of(ask(stage, long)) == (ErrorCode.INVALID_ARGUMENT, "interact.interaction_id")
    for text in ("", "x" * (TEXT_CHARS_MAX + 1)):
        assert code_of(ask(stage, text=text)) == (ErrorCode.INVALID_ARGUMENT, "interact.text")
    assert of_kind(ask(stage), fx.SendPrompt)
    assert code_of(ask(stage)) == (ErrorCode.CONFLICT, "interact.interaction_id")
    (end,) = of_kind(stage.rows(link, stage.text(1, 0, "a", end=True)), fx.EndRequest)
    assert end.terminal.outcome is Outcome.COMPLETED


def test_a_request_has_a_bounded_number_of_prompts() -> None:
    stage, _ = painting()
    for number in range(PROMPTS_MAX):
        assert of_kind(ask(stage, f"p{number}"), fx.SendPrompt)
    assert code_of(ask(stage, "more"))[0] is ErrorCode.OVERLOADED


def test_what_is_unknown_gets_no_prompt() -> None:
    stage, link = painting()
    stage.rows(link, stage.text(1, 0, "a", end=True))
    assert ask(stage) == [fx.AnswerUnknown(link=CoreStage.CLIENT, slot=1)]
    assert ask(stage) == []
    assert stage.do(ev.InteractAsked(link=99, slot=1, interaction_id="p", text="x")) == []
    assert stage.do(ev.Interacted(link=99, slot=1, interaction_id="p")) == []
    assert stage.do(ev.Interacted(link=link, slot=1, interaction_id="p")) == []


@pytest.mark.invariant("ORCH-INV-145")
def test_another_attempt_takes_a_prompt_where_the_lost_one_took_it() -> None:
    stage, link = painting()
    stage.rows(link, _said(0, "a"))
    ask(stage)
    stage.do(ev.Interacted(link=link, slot=1, interaction_id="p", applied_at=1))
    effects = stage.lose(link)
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert submit.prompts == (fx.AppliedPrompt(interaction_id="p", text="x", applied_at=1),)
    assert not of_kind(effects, fx.SendPrompt)


@pytest.mark.invariant("ORCH-INV-145")
def test_what_was_given_is_not_gone_on_from_under_a_prompt_that_nobody_answered() -> None:
    stage, link = painting()
    stage.rows(link, _said(0, "a"))
    ask(stage)
    (end,) = of_kind(stage.lose(link), fx.EndRequest)
    assert end.terminal.error is not None
    assert end.terminal.error.code is ErrorCode.REPLICA_LOST
    assert end.terminal.error.retryable


def _said(pos: int, text: str) -> Row:
    row = CoreStage.text(1, pos, text)
    row.ids = [7]
    return row
