"""What other orchestrators are told."""

from typing import Any

from services.orchestrator.core.views import RequestView
from services.orchestrator.driver import Endings
from services.orchestrator.servicer import PeerServicer, Requests
from stagemesh.api.orchestrator.v1 import peer_service_pb2 as pb
from stagemesh.outcome import COMPLETED
from tests.helpers.scripted_core import ScriptedCore, drive
from tests.helpers.shown_requests import ShownRequests

NO_CONTEXT: Any = None
VIEW = RequestView(
    request_id="r", model="echo", state="DONE", age_s=1.0, tenant="t", epoch=2, terminal=COMPLETED
)


def servicer(shown: ShownRequests) -> PeerServicer:
    requests = Requests(
        drive(ScriptedCore()), shown, Endings(), orchestrator_id="o-1", incarnation=7
    )
    return PeerServicer(requests)


async def test_a_request_is_ended_for_its_tenant() -> None:
    question = pb.EndRequestRequest(request_id="r", tenant="t")
    told = await servicer(ShownRequests(VIEW)).EndRequest(question, NO_CONTEXT)
    assert (told.epoch, told.answer.state) == (2, "DONE")


async def test_a_request_is_shown_to_its_tenant_alone() -> None:
    port = servicer(ShownRequests(VIEW))
    known = await port.ShowRequest(pb.ShowRequestRequest(request_id="r", tenant="t"), NO_CONTEXT)
    other = await port.ShowRequest(pb.ShowRequestRequest(request_id="r", tenant="u"), NO_CONTEXT)
    assert (known.request.request_id, known.request.orchestrator_id) == ("r", "o-1")
    assert not other.HasField("request")


async def test_nobody_gets_more_at_once_than_a_page() -> None:
    shown = ShownRequests(VIEW)
    question = pb.ShowRequestsRequest(tenant="t", count=1_000_000)
    await servicer(shown).ShowRequests(question, NO_CONTEXT)
    assert [query.count for query in shown.queries] == [200]
