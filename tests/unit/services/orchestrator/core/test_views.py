"""Lists of requests."""

import msgspec

from services.orchestrator.core import events as ev
from services.orchestrator.core.views import RequestQuery
from tests.helpers.core_stage import CoreStage, make_request


def listed(stage: CoreStage, query: RequestQuery) -> list[str]:
    return [view.request_id for view in stage.core.request_views(query)]


ALL = RequestQuery(tenant="default", count=100)


def some() -> CoreStage:
    """Two that run, one that waits for admission, one of another tenant, and two that are over."""
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.rows(thinker, CoreStage.text(1, 0, "a", end=True))
    stage.open(make_request("nothing"))
    for _ in range(3):
        stage.open(make_request("echo"))
    stage.open(msgspec.structs.replace(make_request("twice"), tenant="others"))
    return stage


def test_requests_are_listed_as_they_were_opened_the_last_first() -> None:
    assert listed(some(), ALL) == ["r5", "r4", "r3", "r2", "r1"]


def test_a_request_is_shown_with_its_client_s_name_for_it_whatever_came_of_it() -> None:
    stage = CoreStage()
    stage.open(msgspec.structs.replace(make_request("echo"), label="mine"))
    stage.open(msgspec.structs.replace(make_request("nothing"), label="x" * 1000))
    labels = [view.label for view in stage.core.request_views(ALL)]
    assert labels == ["x" * 256, "mine"]


def test_nobody_sees_another_tenant_s() -> None:
    assert listed(some(), RequestQuery(tenant="others", count=100)) == ["r6"]
    assert listed(some(), RequestQuery(tenant="nobody", count=100)) == []


def test_a_list_is_of_one_state_and_of_one_model_where_they_are_given() -> None:
    stage = some()
    assert listed(stage, msgspec.structs.replace(ALL, state="DONE")) == ["r2", "r1"]
    assert listed(stage, msgspec.structs.replace(ALL, state="QUEUED")) == ["r5"]
    assert listed(stage, msgspec.structs.replace(ALL, model="nothing")) == ["r2"]
    both = msgspec.structs.replace(ALL, model="echo", state="RUNNING")
    assert listed(stage, both) == ["r4", "r3"]


def test_a_model_may_go_by_its_other_name() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    stage.open(make_request("parrot"))
    assert listed(stage, msgspec.structs.replace(ALL, model="parrot")) == ["r1"]


def test_a_list_goes_on_where_it_ended() -> None:
    stage = some()
    first = stage.core.request_views(msgspec.structs.replace(ALL, count=2))
    assert [view.request_id for view in first] == ["r5", "r4"]
    rest = msgspec.structs.replace(ALL, before=first[-1].serial)
    stage.open(make_request("echo"))
    assert listed(stage, rest) == ["r3", "r2", "r1"]


def test_the_number_of_a_request_outlives_its_end() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    stage.open(make_request("echo"))
    before = stage.core.request_view("r1")
    stage.do(ev.RequestAbortAsked(request_id="r1", cause="asked"))
    stage.wait(1.0)
    after = stage.core.request_view("r1")
    assert before is not None
    assert after is not None
    assert (after.serial, after.epoch, after.tenant) == (before.serial, 1, "default")
