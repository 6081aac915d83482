"""Where work goes when many requests come at once and replicas come, go and tell little."""

from collections import Counter

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.replicas import LoadReport, WorkerCard, WorkerState
from stagemesh.pipeline import Mesh, parse_mesh
from tests.helpers.core_stage import CoreStage, make_request, of_kind


def mesh(policy: str = "least_loaded") -> Mesh:
    return parse_mesh(
        f"""
pools:
  thinker: {{engine: synthetic, replica_choice: {policy}}}
pipelines:
  echo:
    limits: {{running_max: 1000}}
    stages: {{thinker: {{pool: thinker, choices: true}}}}
    outputs: {{text: thinker}}
"""
    )


class Crowd:
    """A core with many requests, and which replica each of them went to."""

    def __init__(self, policy: str = "least_loaded") -> None:
        self.stage = CoreStage(mesh=mesh(policy))
        self.slots: dict[str, tuple[int, int]] = {}

    def open(self, count: int) -> Counter[int]:
        """Open requests; tell how many went to each link."""
        links: list[int] = []
        for _ in range(count):
            effects = self.stage.open(make_request("echo"))[1]
            links += [submit.link for submit in self._taken(effects)]
        return Counter(links)

    def end_on(self, link: int, count: int) -> None:
        """Let a replica end so many of its requests."""
        mine = [name for name, (at, _) in self.slots.items() if at == link][:count]
        for name in mine:
            _, slot = self.slots.pop(name)
            self._taken(self.stage.rows(link, CoreStage.text(slot, 0, "a", end=True)))

    def _taken(self, effects: list[fx.Effect]) -> list[fx.SubmitAttempts]:
        submits = of_kind(effects, fx.SubmitAttempts)
        for submit in submits:
            self.slots[submit.request_id] = (submit.link, submit.roles[0].slot)
        return submits


@pytest.mark.parametrize("policy", ["least_loaded", "round_robin"])
def test_a_burst_between_two_reports_is_split(policy: str) -> None:
    """BR-141: what was given since the last report counts at once."""
    crowd = Crowd(policy)
    first, _ = crowd.stage.replica("thinker", slots=64)
    second, _ = crowd.stage.replica("thinker", slots=64)
    assert crowd.open(40) == {first: 20, second: 20}


def test_a_replica_that_reports_nothing_or_always_nothing_is_not_taken_for_idle() -> None:
    """BR-147: a report can add to what is known here, and never takes away from it."""
    crowd = Crowd()
    silent, _ = crowd.stage.replica("thinker", slots=64)
    zero, _ = crowd.stage.replica("thinker", slots=64)
    seen: Counter[int] = Counter()
    for _ in range(20):
        seen += crowd.open(2)
        crowd.stage.do(
            ev.ReplicaReported(link=zero, state=WorkerState.READY, load=LoadReport(running=0))
        )
    assert seen == {silent: 20, zero: 20}


@pytest.mark.parametrize("policy", ["least_loaded", "round_robin"])
def test_new_replicas_get_their_share_and_those_that_left_nothing(policy: str) -> None:
    """BR-143: who can be used comes from links, at once."""
    crowd = Crowd(policy)
    first, _ = crowd.stage.replica("thinker", slots=64)
    assert crowd.open(3) == {first: 3}
    second, _ = crowd.stage.replica("thinker", slots=64)
    third, _ = crowd.stage.replica("thinker", slots=64)
    crowd.end_on(first, 3)
    seen = crowd.open(30)
    assert min(seen[link] for link in (first, second, third)) >= 8
    crowd.stage.do(ev.ReplicaListed(replica_id=f"thinker-{third}", listed=False))
    assert crowd.open(10)[third] == 0


def test_new_requests_go_to_who_came_back_until_there_is_a_balance() -> None:
    """BR-146: a request stays where it is, and nothing else is sticky."""
    crowd = Crowd()
    first, _ = crowd.stage.replica("thinker", slots=64)
    assert crowd.open(10) == {first: 10}
    second, _ = crowd.stage.replica("thinker", slots=64)
    assert crowd.open(10) == {second: 10}
    assert {view.link: view.in_flight for view in crowd.stage.core.replica_views()} == {
        first: 10,
        second: 10,
    }


def test_a_second_process_of_one_replica_replaces_the_first_by_rule() -> None:
    """BR-144: what the older one still says of itself changes nothing."""
    crowd = Crowd()
    older, _ = crowd.stage.replica("thinker", slots=64)
    card = crowd.stage.core.replica_views()[0]
    crowd.stage.do(
        ev.ReplicaAttached(
            link=99,
            pool="thinker",
            replica_id=card.replica_id,
            incarnation=99,
            card=WorkerCard(slots=64),
            state=WorkerState.READY,
            window_units=64,
            window_bytes=1 << 20,
        )
    )
    for state in (WorkerState.DRAINING, WorkerState.READY, WorkerState.DRAINING):
        crowd.stage.do(ev.ReplicaReported(link=older, state=state, load=LoadReport(running=9)))
        assert crowd.open(3) == {99: 3}


def test_choices_are_placed_as_there_is_room_and_an_abort_gives_all_of_it_back() -> None:
    """BR-175: a request of several choices is let in whole; none of them is refused for room."""
    stage = CoreStage(mesh=mesh())
    link, _ = stage.replica("thinker", slots=5)
    submits = []
    for _ in range(2):
        submits += of_kind(stage.open(make_request("echo", choices=4))[1], fx.SubmitAttempts)
    assert [(s.request_id, len(s.roles)) for s in submits] == [("r1", 4), ("r2", 1)]
    stage.do(ev.AbortAsked(link=1, slot=2, cause="asked"))
    effects = stage.do(ev.AttemptUnknown(link=link, slot=5))
    assert [end.request_id for end in of_kind(effects, fx.EndRequest)] == ["r2"]
    (view,) = stage.core.replica_views()
    assert view.in_flight == 4


def test_one_conversation_goes_where_it_was_and_others_go_elsewhere_too() -> None:
    crowd = Crowd("prefix_affinity")
    links = [crowd.stage.replica("thinker", slots=64)[0] for _ in range(4)]
    seen: Counter[int] = Counter()
    for _ in range(5):
        (link,) = went = crowd.open(1)
        crowd.end_on(link, 1)
        seen += went
    (favourite,) = seen
    assert favourite in links
    assert len(crowd.open(12)) > 1, "one prefix does not fill one replica while others are idle"
