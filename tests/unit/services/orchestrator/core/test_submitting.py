"""Submissions."""

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from tests.helpers.core_stage import CoreStage, make_request, of_kind

TOKENS, REPLAY = ResumeContract.TOKENS, ResumeContract.REPLAY


def test_a_gateway_knows_of_every_role_before_its_worker_does() -> None:
    stage = CoreStage(mirrors=True)
    encoder, _ = stage.replica("encoder", REPLAY)
    _, effects = stage.open(make_request("paint"))
    notices = of_kind(effects, fx.PlaceNotice)
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert [(one.placed.role, one.placed.attempt) for one in notices] == [(0, 1), (1, 1)]
    assert {one.placed.replica_id for one in notices} == {f"encoder-{encoder}"}
    assert effects.index(notices[-1]) < effects.index(submit)


def test_a_caller_who_keeps_no_journal_is_not_told_of_places() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    assert not of_kind(stage.open(make_request("echo"))[1], fx.PlaceNotice)


def test_ids_are_asked_for_where_somebody_could_go_on_by_them() -> None:
    for contract in ResumeContract:
        stage = CoreStage()
        stage.replica("thinker", contract)
        (submit,) = of_kind(stage.open(make_request("echo"))[1], fx.SubmitAttempts)
        assert [role.token_ids for role in submit.roles] == [contract is TOKENS]
    stage = CoreStage()
    stage.replica("encoder", TOKENS)
    (submit,) = of_kind(stage.open(make_request("paint"))[1], fx.SubmitAttempts)
    assert not any(role.token_ids for role in submit.roles), "it gives no text"


def test_choices_that_fit_go_together_also_when_they_are_lost_together() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", TOKENS)
    second, _ = stage.replica("thinker", TOKENS)
    _, effects = stage.open(make_request("echo", choices=3))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert [role.role for role in submit.roles] == [0, 1, 2]
    stage.rows(first, CoreStage.text(2, 0, "a", role=1, end=True))
    (submit,) = of_kind(stage.lose(first), fx.SubmitAttempts)
    assert submit.link == second
    assert [role.role for role in submit.roles] == [0, 2], "the one that ended is not run again"


def test_a_first_submission_and_one_that_goes_on_are_two() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", TOKENS, slots=1)
    stage.open(make_request("echo", choices=2))
    stage.do(ev.ReplicaLost(link=first))
    stage.wait(0.05)
    _, effects = stage.replica("thinker", TOKENS, slots=4)
    submits = of_kind(effects, fx.SubmitAttempts)
    assert [[role.role for role in submit.roles] for submit in submits] == [[0], [1]]
    assert [submit.contract for submit in submits] == [TOKENS, None]
