"""Replicas come and go."""

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.membership import UNLISTED_MAX
from services.orchestrator.core.replicas import WorkerState
from services.orchestrator.core.settings import CoreSettings
from tests.helpers.core_stage import CoreStage, make_request, of_kind


def ready(effects: list[fx.Effect]) -> set[str] | None:
    """Give the models that were said to be ready, if anything was said."""
    news = of_kind(effects, fx.PublishModels)
    return {model.model for model in news[0].models if model.ready} if news else None


def test_models_are_published_when_their_readiness_changes_and_only_then() -> None:
    stage = CoreStage()
    _, effects = stage.replica("thinker")
    ready_by_thinkers = {"echo", "parrot", "hear", "twice"}
    assert ready(effects) == ready_by_thinkers, "a stage with `when` is not needed for readiness"
    second, effects = stage.replica("thinker")
    assert ready(effects) is None
    _, effects = stage.replica("listener")
    assert ready(effects) == ready_by_thinkers | {"listen"}
    talker, effects = stage.replica("talker")
    assert ready(effects) == ready_by_thinkers | {"listen", "talk"}
    assert ready(stage.report(talker, WorkerState.DRAINING)) == ready_by_thinkers | {"listen"}
    assert ready(stage.report(second, WorkerState.STALLED)) is None
    assert stage.core.models[0].ready


def test_discovery_may_speak_before_the_link_does_and_its_memory_is_bounded() -> None:
    stage = CoreStage()
    for number in range(UNLISTED_MAX + 10):
        stage.do(ev.ReplicaListed(replica_id=f"thinker-{number}", listed=False))
    link, effects = stage.replica("thinker")
    assert ready(effects) is not None, "the oldest were forgotten"
    stage.do(ev.ReplicaListed(replica_id=f"thinker-{link + 1}", listed=False))
    stage.replica("thinker")
    assert [view.listed for view in stage.core.replica_views()] == [True, False]


def test_a_worker_that_moves_is_not_stalled_however_long_it_takes() -> None:
    stage = CoreStage(CoreSettings(stall_s=30.0))
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"), deadline_s=1000.0)
    for steps in range(1, 8):
        stage.wait(20.0)
        assert stage.core.replica_views()[0].usable
        stage.report(thinker, WorkerState.READY, steps=steps)
    stage.wait(30.0)
    assert stage.core.replica_views()[0].state is WorkerState.STALLED
    stage.rows(thinker, CoreStage.text(1, 0, "a"))
    assert stage.core.replica_views()[0].usable


def test_an_idle_worker_never_stalls() -> None:
    stage = CoreStage(CoreSettings(stall_s=30.0))
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.rows(thinker, CoreStage.text(1, 0, "a", end=True))
    stage.wait(100.0)
    assert stage.core.replica_views()[0].usable


def test_a_report_that_repeats_a_step_is_no_progress() -> None:
    stage = CoreStage(CoreSettings(stall_s=30.0))
    thinker, _ = stage.replica("thinker")
    stage.report(thinker, WorkerState.READY, steps=5)
    stage.open(make_request("echo"), deadline_s=1000.0)
    stage.wait(29.0)
    stage.report(thinker, WorkerState.READY, steps=5)
    stage.wait(1.0)
    assert not stage.core.replica_views()[0].usable


def test_a_lost_replica_is_gone_from_every_view() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    assert ready(stage.do(ev.ReplicaLost(link=thinker))) == set()
    assert stage.core.replica_views() == ()


def test_what_a_replica_that_stands_still_has_goes_elsewhere_and_its_slots_do_not() -> None:
    stage = CoreStage(CoreSettings(stall_s=30.0))
    first, _ = stage.replica("thinker", ResumeContract.TOKENS, slots=1)
    second, _ = stage.replica("thinker", ResumeContract.TOKENS, slots=1)
    stage.open(make_request("echo"), deadline_s=1000.0)
    effects = stage.wait(30.0)
    assert [abort.link for abort in of_kind(effects, fx.AbortAttempt)] == [first]
    assert [one.link for one in of_kind(stage.wait(0.05), fx.SubmitAttempts)] == [second]
    assert stage.core.replica_views()[0].in_flight == 1
    stage.report(first, WorkerState.READY, steps=1)
    _, effects = stage.open(make_request("echo"))
    assert not of_kind(effects, fx.SubmitAttempts), "it has not answered"
    effects = stage.do(ev.AttemptUnknown(link=first, slot=1))
    assert [one.link for one in of_kind(effects, fx.SubmitAttempts)] == [first]


def test_who_stood_still_gets_what_it_had_again_only_if_there_is_nobody_else() -> None:
    """An engine that answers aborts and nothing else would seem to be free after each of them."""
    stage = CoreStage(CoreSettings(stall_s=30.0))
    first, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.open(make_request("echo"), deadline_s=1000.0)
    second, _ = stage.replica("thinker", ResumeContract.TOKENS)
    _, effects = stage.open(make_request("echo"), deadline_s=1000.0)
    assert [one.link for one in of_kind(effects, fx.SubmitAttempts)] == [second]
    stage.wait(20.0)
    stage.rows(second, CoreStage.text(1, 0, "a"))
    stage.wait(10.0)
    stage.do(ev.AttemptUnknown(link=first, slot=1))
    stage.report(first, WorkerState.READY, steps=1)
    assert stage.core.replica_views()[0].usable
    assert [one.link for one in of_kind(stage.wait(0.05), fx.SubmitAttempts)] == [second]

    alone = CoreStage(CoreSettings(stall_s=30.0))
    only, _ = alone.replica("thinker", ResumeContract.TOKENS)
    alone.open(make_request("echo"), deadline_s=1000.0)
    alone.wait(30.0)
    alone.report(only, WorkerState.READY, steps=1)
    assert [one.link for one in of_kind(alone.wait(0.05), fx.SubmitAttempts)] == [only]


def test_who_has_given_all_that_credit_allows_is_not_stalled() -> None:
    stage = CoreStage(CoreSettings(stall_s=30.0, slow_s=1000.0), units=1)
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.open(make_request("echo"), deadline_s=1000.0)
    row = CoreStage.text(1, 0, "x")
    row.units = 40
    stage.rows(thinker, row)
    more = CoreStage.text(1, 40, "x")
    more.units = 40
    stage.rows(thinker, more)
    stage.wait(100.0)
    assert stage.core.replica_views()[0].usable


def test_who_has_been_sent_all_there_is_of_its_input_is_not_stalled() -> None:
    stage = CoreStage(CoreSettings(stall_s=30.0))
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS)
    talker, _ = stage.replica("talker", ResumeContract.REPLAY)
    stage.open(make_request("talk"), deadline_s=1000.0)
    stage.rows(thinker, CoreStage.text(1, 0, "a"))
    for steps in range(1, 6):
        stage.wait(20.0)
        stage.report(thinker, WorkerState.READY, steps=steps)
    views = {view.link: view.usable for view in stage.core.replica_views()}
    assert views == {thinker: True, talker: True}
    stage.rows(thinker, CoreStage.text(1, 1, "b", end=True))
    stage.wait(35.0)
    views = {view.link: view.usable for view in stage.core.replica_views()}
    assert views == {thinker: True, talker: False}, "now it has everything"


def test_a_worker_that_says_that_it_stands_still_is_believed() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", ResumeContract.TOKENS)
    second, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.open(make_request("echo"))
    effects = stage.report(first, WorkerState.STALLED)
    assert [abort.link for abort in of_kind(effects, fx.AbortAttempt)] == [first]
    assert [one.link for one in of_kind(stage.wait(0.05), fx.SubmitAttempts)] == [second]
    assert not of_kind(stage.report(first, WorkerState.STALLED), fx.AbortAttempt)
