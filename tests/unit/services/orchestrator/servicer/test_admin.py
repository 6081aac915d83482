"""The admin port, without a server."""

import asyncio
from typing import Any

import pytest

from services.orchestrator.core.effects import AnswerControl, ReplicaResult
from services.orchestrator.core.events import ControlAsked, Event
from services.orchestrator.core.replicas import WorkerState
from services.orchestrator.core.views import ReplicaView, RequestView
from services.orchestrator.driver import Endings
from services.orchestrator.servicer import AdminServicer, Operations, Requests, Watchers
from services.orchestrator.translate import KnownReplica
from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.types.v1 import control_pb2, link_pb2
from stagemesh.control import (
    Adapter,
    Answer,
    Call,
    CollectiveCall,
    Drain,
    ListAdapters,
    LoadAdapter,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    Undrain,
    UnloadAdapter,
    WakeUp,
)
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode
from tests.helpers.scripted_core import ScriptedCore, drive
from tests.helpers.shown_requests import ShownRequests

NO_CONTEXT: Any = None
BOTH = frozenset({"thinker", "talker"})


class Shown:
    """A core with one replica on link 3."""

    requests_open = 4
    changes = 0

    def replica_views(self) -> list[ReplicaView]:
        """Show it."""
        return [
            ReplicaView(
                link=3,
                pool="thinker",
                replica_id="thinker-1",
                incarnation=1,
                state=WorkerState.DRAINING,
                usable=False,
                listed=True,
                slots=1,
                in_flight=1,
            )
        ]


class Answering:
    """A driver whose core answers every call at once, with one result."""

    def __init__(self) -> None:
        self.asked: list[ControlAsked] = []
        self.outlet: Any = None

    def connect(self, link: int, outlet: Any) -> None:
        """Take who performs the answers."""
        self.outlet = outlet

    def post(self, event: Event) -> None:
        """Answer a call."""
        assert isinstance(event, ControlAsked)
        self.asked.append(event)
        done = ReplicaResult(
            pool="thinker",
            replica_id="thinker-1",
            incarnation=7,
            answer=Answer(adapters=(Adapter(name="a", path="/a"),), value={"n": 1}),
            took_s=0.5,
        )
        self.outlet.perform(AnswerControl(call_id=event.call_id, results=(done,)))


class Drained:
    """An orchestrator that can be taken out."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def drain(self, drain_s: float) -> None:
        """Take it out."""
        self.log.append(f"drain {drain_s:g}")

    def undrain(self) -> None:
        """Take it in again."""
        self.log.append("undrain")


def known(pool: str, replica_id: str, link: int = 0) -> KnownReplica:
    hello = link_pb2.Hello(id=replica_id) if link else None
    if hello is not None:
        hello.worker.capabilities.collective_calls.append("state")
    return KnownReplica(pool=pool, replica_id=replica_id, address="a", link=link, hello=hello)


def requests(*views: RequestView) -> Requests:
    shown = ShownRequests(*views)
    return Requests(drive(ScriptedCore()), shown, Endings(), orchestrator_id="o-0", incarnation=3)


KNOWN = [
    known("thinker", "thinker-1", 3),
    known("talker", "talker-0"),
    known("thinker", "thinker-0"),
]


class Port:
    """The servicer, and what is behind it."""

    def __init__(self, *views: RequestView) -> None:
        self.driver = Answering()
        drained = Drained()
        self.drained = drained
        draining: Any = drained
        shown = Shown()
        operations = Operations(self.driver, lambda: KNOWN)
        operations.attach()
        self.servicer = AdminServicer(
            pools=["thinker", "talker"],
            views=shown,
            watchers=Watchers(shown, lambda: KNOWN, lambda: link_pb2.Hello(id="o-0")),
            operations=operations,
            draining=draining,
            hello=lambda: link_pb2.Hello(id="o-0"),
            requests=requests(*views),
        )


async def listed(*pools: str) -> pb.ListReplicasResponse:
    return await Port().servicer.ListReplicas(pb.ListReplicasRequest(pools=pools), NO_CONTEXT)


async def test_replicas_are_listed_in_order_with_the_cores_view_of_each() -> None:
    answer = await listed()

    assert [(one.replica_id, one.inflight) for one in answer.replicas] == [
        ("talker-0", 0),
        ("thinker-0", 0),
        ("thinker-1", 1),
    ]
    assert answer.replicas[2].state == link_pb2.PROCESS_STATE_DRAINING
    assert (answer.orchestrator.id, answer.requests_open) == ("o-0", 4)


async def test_only_the_pools_that_are_named_are_listed() -> None:
    assert [one.replica_id for one in (await listed("talker")).replicas] == ["talker-0"]


async def test_an_operator_is_told_of_any_tenant_s_request_and_of_none_that_is_unknown() -> None:
    view = RequestView(request_id="r", model="echo", state="RUNNING", age_s=1.0, tenant="t")
    port = Port(view).servicer
    known = await port.ExplainRequest(pb.ExplainRequestRequest(request_id="r"), NO_CONTEXT)
    unknown = await port.ExplainRequest(pb.ExplainRequestRequest(request_id="s"), NO_CONTEXT)
    assert known.request.state == "RUNNING"
    assert not unknown.HasField("request")


CALLS: list[tuple[str, Any, Call]] = [
    (
        "Pause",
        pb.PauseRequest(mode=control_pb2.PAUSE_MODE_KEEP),
        Pause(mode=PauseMode.KEEP),
    ),
    ("Pause", pb.PauseRequest(), Pause(mode=PauseMode.WAIT)),
    ("Resume", pb.ResumeRequest(), Resume()),
    (
        "Sleep",
        pb.SleepRequest(tags=["weights", "kv_cache"], mode=control_pb2.PAUSE_MODE_ABORT),
        Sleep(mode=PauseMode.ABORT, tags=("kv_cache", "weights")),
    ),
    ("Sleep", pb.SleepRequest(level=2), Sleep(mode=PauseMode.WAIT, level=2)),
    ("WakeUp", pb.WakeUpRequest(tags=["weights"]), WakeUp(tags=("weights",))),
    ("ResetCache", pb.ResetCacheRequest(), ResetCache()),
    (
        "LoadAdapter",
        pb.LoadAdapterRequest(adapter=control_pb2.Adapter(name="a", path="/a")),
        LoadAdapter(adapter=Adapter(name="a", path="/a")),
    ),
    ("UnloadAdapter", pb.UnloadAdapterRequest(name="a"), UnloadAdapter(name="a")),
    ("ListAdapters", pb.ListAdaptersRequest(), ListAdapters()),
    ("StartProfile", pb.StartProfileRequest(), StartProfile()),
    ("StopProfile", pb.StopProfileRequest(), StopProfile()),
    ("CollectiveCall", pb.CollectiveCallRequest(name="state"), CollectiveCall(name="state")),
]


@pytest.mark.parametrize(("method", "request_", "call"), CALLS)
async def test_a_call_goes_to_every_pool_and_gives_a_result_for_each_replica(
    method: str, request_: Any, call: Call
) -> None:
    port = Port()

    answer = await getattr(port.servicer, method)(request_, NO_CONTEXT)

    (asked,) = port.driver.asked
    assert (asked.call, asked.wait_s, asked.pools) == (call, 30.0, BOTH)
    assert [(one.replica_id, one.error.reason) for one in answer.results] == [
        ("talker-0", "no_replica"),
        ("thinker-0", "no_replica"),
        ("thinker-1", ""),
    ]
    done = answer.results[2]
    assert (done.incarnation, done.adapters[0].name, done.value["n"]) == (7, "a", 1)
    assert done.took_s == 0.5


async def test_a_call_may_name_its_pools_and_its_time() -> None:
    port = Port()
    await port.servicer.Resume(
        pb.ResumeRequest(pools=["talker", "talker"], timeout_s=0.0), NO_CONTEXT
    )
    (asked,) = port.driver.asked
    assert (asked.pools, asked.wait_s) == (frozenset({"talker"}), 0.0)


WRONG: list[tuple[str, Any, str]] = [
    ("Pause", pb.PauseRequest(pools=["thinker", "singer"]), "pools[1]"),
    ("Pause", pb.PauseRequest(timeout_s=-1.0), "timeout_s"),
    ("Pause", pb.PauseRequest(timeout_s=601.0), "timeout_s"),
    ("Pause", pb.PauseRequest(timeout_s=float("nan")), "timeout_s"),
    ("Sleep", pb.SleepRequest(mode=control_pb2.PAUSE_MODE_KEEP), "mode"),
    ("Sleep", pb.SleepRequest(tags=["weights", "hair"]), "tags[1]"),
    ("WakeUp", pb.WakeUpRequest(tags=["hair"]), "tags[0]"),
    (
        "LoadAdapter",
        pb.LoadAdapterRequest(adapter=control_pb2.Adapter(path="/a")),
        "adapter.name",
    ),
    (
        "LoadAdapter",
        pb.LoadAdapterRequest(adapter=control_pb2.Adapter(name="a")),
        "adapter.path",
    ),
    ("UnloadAdapter", pb.UnloadAdapterRequest(name="a" * 257), "name"),
    ("CollectiveCall", pb.CollectiveCallRequest(name="reboot"), "name"),
    ("CollectiveCall", pb.CollectiveCallRequest(), "name"),
    ("ListReplicas", pb.ListReplicasRequest(pools=["singer"]), "pools[0]"),
    ("Drain", pb.DrainRequest(), "replica_ids"),
    (
        "Drain",
        pb.DrainRequest(replica_ids=["thinker-1", "x"], orchestrator=True),
        "replica_ids[1]",
    ),
    ("Drain", pb.DrainRequest(orchestrator=True, drain_s=-1.0), "drain_s"),
    ("Undrain", pb.UndrainRequest(), "replica_ids"),
]


@pytest.mark.parametrize(("method", "request_", "param"), WRONG)
async def test_what_is_wrong_is_named_before_anything_is_done(
    method: str, request_: Any, param: str
) -> None:
    port = Port()
    with pytest.raises(MeshError) as caught:
        await getattr(port.servicer, method)(request_, NO_CONTEXT)
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == param
    assert port.driver.asked == []
    assert port.drained.log == []


async def test_an_unknown_pool_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(MeshError, match="there are talker, thinker"):
        await listed("singer")


async def test_replicas_and_the_orchestrator_are_taken_out_and_in_again() -> None:
    port = Port()
    request = pb.DrainRequest(replica_ids=["thinker-1"], orchestrator=True, drain_s=3.0)
    out = await port.servicer.Drain(request, NO_CONTEXT)
    back = await port.servicer.Undrain(
        pb.UndrainRequest(replica_ids=["thinker-1"], orchestrator=True), NO_CONTEXT
    )
    assert [(one.call, one.replica_ids) for one in port.driver.asked] == [
        (Drain(drain_s=3.0), frozenset({"thinker-1"})),
        (Undrain(), frozenset({"thinker-1"})),
    ]
    assert port.driver.asked[0].wait_s > 3.0
    assert port.drained.log == ["drain 3", "undrain"]
    assert out.requests_open == 4
    assert not out.results[0].HasField("error")
    assert not back.results[0].HasField("error")


async def test_a_watcher_hears_of_the_replicas_of_its_pools() -> None:
    watch = Port().servicer.Watch(pb.WatchRequest(pools=["talker"]), NO_CONTEXT)
    async with asyncio.timeout(1):
        first = await anext(watch)
    assert [one.replica_id for one in first.replicas] == ["talker-0"]
    await watch.aclose()  # type: ignore[attr-defined]
