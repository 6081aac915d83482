"""What one orchestrator knows of requests, and does to them."""

import asyncio

import msgspec

from services.orchestrator.core.effects import Effect
from services.orchestrator.core.events import Event, RequestAbortAsked
from services.orchestrator.core.views import AttemptView, RequestView
from services.orchestrator.driver import Endings
from services.orchestrator.servicer import Requests
from stagemesh.api.orchestrator.v1 import peer_service_pb2
from stagemesh.api.types.v1 import outcome_pb2
from stagemesh.outcome import COMPLETED, Outcome, Terminal, error_for
from tests.helpers.scripted_core import ScriptedCore, drive
from tests.helpers.shown_requests import ShownRequests

ABORTED = Terminal(outcome=Outcome.CANCELLED, error=error_for("aborted"))
RUNNING = RequestView(
    request_id="r", model="echo", state="RUNNING", age_s=1.0, tenant="default", epoch=2
)
DONE = msgspec.structs.replace(RUNNING, state="DONE", terminal=COMPLETED)
STUCK = msgspec.structs.replace(
    RUNNING,
    state="STOPPING",
    attempts=(
        AttemptView(
            stage="thinker", role=0, number=1, state="STOPPING", replica_id="t", unconfirmed=True
        ),
    ),
)


class Case:
    """Requests over a scripted core; `then` is what the core shows once it was told to abort."""

    def __init__(self, *views: RequestView, then: RequestView | None = None) -> None:
        def answer(event: Event) -> list[Effect]:
            if isinstance(event, RequestAbortAsked) and then is not None:
                self.shown.views[then.request_id] = then
            return []

        self.core = ScriptedCore(answer)
        self.shown = ShownRequests(*views)
        self.endings = Endings()
        self.requests = Requests(
            drive(self.core), self.shown, self.endings, orchestrator_id="o-0", incarnation=77
        )

    async def end(
        self, request_id: str = "r", *, tenant: str = "default", partials: bool = False
    ) -> peer_service_pb2.EndRequestResponse:
        """End a request."""
        async with asyncio.timeout(5):
            return await self.requests.end(request_id, tenant, partials=partials)


async def test_the_answer_comes_when_every_stage_has_let_go() -> None:
    case = Case(RUNNING, then=msgspec.structs.replace(RUNNING, state="STOPPING"))
    ending = asyncio.create_task(case.end(partials=True))
    await case.core.until(lambda: bool(case.core.events))
    assert not ending.done()
    case.shown.views["r"] = msgspec.structs.replace(DONE, terminal=ABORTED)
    case.endings.ended("r")

    told = await ending
    assert (told.epoch, told.answer.aborted, told.answer.state) == (2, True, "DONE")
    assert told.answer.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
    assert list(told.answer.unconfirmed_stages) == []
    assert case.core.events == [
        RequestAbortAsked(request_id="r", cause="client_asked", tenant="default", partials=True)
    ]


async def test_one_that_ends_in_the_same_step_is_not_waited_for() -> None:
    case = Case(RUNNING, then=msgspec.structs.replace(DONE, terminal=ABORTED))
    assert (await case.end()).answer.state == "DONE"
    assert len(case.endings) == 0


async def test_a_stage_that_does_not_confirm_is_named_in_time() -> None:
    told = await Case(RUNNING, then=STUCK).end()
    assert (told.answer.aborted, told.answer.state) == (True, "STOPPING")
    assert list(told.answer.unconfirmed_stages) == ["thinker"]
    assert not told.answer.HasField("terminal")


async def test_one_that_is_over_keeps_the_end_that_it_had() -> None:
    told = await Case(DONE).end()
    assert (told.answer.aborted, told.answer.state) == (False, "DONE")
    assert told.answer.terminal.outcome == outcome_pb2.OUTCOME_COMPLETED


async def test_the_core_hears_of_one_that_nobody_knows_so_that_it_is_refused_later() -> None:
    case = Case()
    told = await case.end("nobody")
    assert (told.epoch, told.answer.aborted, told.answer.state) == (0, False, "")
    assert [
        event.request_id for event in case.core.events if isinstance(event, RequestAbortAsked)
    ] == ["nobody"]


async def test_another_tenant_s_request_is_as_good_as_unknown() -> None:
    case = Case(RUNNING)
    assert (await case.end(tenant="others")).epoch == 0
    assert case.requests.show("r", "others") is None


async def test_an_operator_sees_every_tenant_s() -> None:
    shown = Case(RUNNING).requests.show("r", "")
    assert shown is not None
    assert (shown.orchestrator_id, shown.state) == ("o-0", "RUNNING")


async def test_a_list_goes_on_after_the_mark_of_this_incarnation_only() -> None:
    case = Case(RUNNING, DONE)
    question = peer_service_pb2.ShowRequestsRequest(tenant="default", state="DONE", count=3)
    question.marks.add(incarnation=5, before=9)
    case.requests.list(question)
    question.marks.add(incarnation=77, before=4)
    answer = case.requests.list(question)

    assert [(query.before, query.state, query.count) for query in case.shown.queries] == [
        (0, "DONE", 3),
        (4, "DONE", 3),
    ]
    assert (answer.orchestrator_id, answer.incarnation) == ("o-0", 77)
    assert [line.orchestrator_id for line in answer.requests] == ["o-0"]
