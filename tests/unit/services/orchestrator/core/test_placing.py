"""Placing."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Row
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import Outcome, Terminal, error_for
from stagemesh.pipeline import parse_mesh
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind

CHAIN = """\
pools:
  shared: {engine: synthetic}
pipelines:
  chain:
    stages:
      maker: {pool: shared}
      reader: {pool: shared, inputs: [{from: maker, mode: stream}]}
    outputs: {text: reader}
"""
"""A reader in the pool of what it reads."""

FULL = Terminal(outcome=Outcome.REJECTED, error=error_for("no_slot"))


def test_load_is_relative_to_size() -> None:
    stage = CoreStage()
    small, _ = stage.replica("thinker", slots=1)
    large, _ = stage.replica("thinker", slots=8)
    links = []
    for model in ("echo", "echo", "twice", "twice", "talk"):
        (submit,) = of_kind(stage.open(make_request(model))[1], fx.SubmitAttempts)
        links.append(submit.link)
    assert links == [small, large, large, large, large]


def test_a_submission_names_everything_that_a_worker_needs() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    slot, effects = stage.open(make_request("parrot"), deadline_s=7.0)
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.link, submit.request_id, submit.epoch) == (thinker, f"r{slot}", 1)
    assert (submit.model, submit.stage, submit.attempt) == ("echo", 0, 1)
    assert submit.body == "as it came"
    assert submit.deadline_left_s == 7.0


def back_off_s(number: int) -> float:
    """Let the request of that number be refused; tell how long it waits before it tries again."""
    stage = CoreStage(CoreSettings(back_off_s=0.1))
    for slot in range(1, number + 1):
        stage.open(make_request("echo"))
        stage.do(ev.AbortAsked(link=1, slot=slot, cause="asked"))
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=FULL))
    wakeup_s = stage.core.next_wakeup_s
    assert wakeup_s is not None
    return wakeup_s


def test_refused_requests_come_back_at_different_times() -> None:
    waits = [back_off_s(number) for number in range(5)]
    assert all(0.05 <= wait_s <= 0.1 for wait_s in waits)
    assert len(set(waits)) == 5


@pytest.mark.invariant("ORCH-INV-105")
def test_another_core_waits_as_long_for_the_same_request() -> None:
    assert [back_off_s(number) for number in range(5)] == [back_off_s(n) for n in range(5)]


def test_the_back_off_grows_up_to_its_bound() -> None:
    stage = CoreStage(CoreSettings(redrive_s=100.0, back_off_s_max=0.4))
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    waits = []
    for slot in range(1, 9):
        stage.do(ev.AttemptEnded(link=thinker, slot=slot, terminal=FULL))
        wakeup = stage.core.next_wakeup_s
        assert wakeup is not None
        waits.append(wakeup - stage.now_s)
        stage.wait(wakeup - stage.now_s)
    assert waits == sorted(waits)
    assert waits[0] < 0.06
    assert 0.2 <= waits[-1] <= 0.4


def test_a_group_is_placed_as_soon_as_there_is_room_for_all_of_it() -> None:
    stage = CoreStage()
    encoder, _ = stage.replica("encoder", slots=3)
    stage.replica("painter")
    stage.open(make_request("paint"))
    assert not of_kind(stage.open(make_request("paint"))[1], fx.SubmitAttempts)
    effects = stage.do(ev.AttemptUnknown(link=encoder, slot=1))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.request_id, len(submit.roles)) == ("r2", 2)


def test_a_request_waits_for_its_home_while_others_pass() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", slots=1)
    stage.open(make_request("twice"))
    second, _ = stage.replica("thinker", slots=1)
    stage.open(make_request("twice"))
    effects = stage.rows(first, CoreStage.text(1, 0, "a", end=True))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.link, submit.request_id, submit.stage) == (first, "r1", 1)
    assert {view.link: view.in_flight for view in stage.core.replica_views()} == {
        first: 1,
        second: 1,
    }


def test_a_request_leaves_a_home_that_cannot_be_used_any_more() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", slots=1)
    stage.open(make_request("twice"))
    second, _ = stage.replica("thinker", slots=1)
    stage.do(ev.ReplicaListed(replica_id=f"thinker-{first}", listed=False))
    effects = stage.rows(first, CoreStage.text(1, 0, "a", end=True))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert submit.link == second


def test_who_was_refused_and_finds_no_room_elsewhere_keeps_nobody_waiting() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", slots=2)
    stage.open(make_request("twice"))
    stage.open(make_request("echo"))
    stage.replica("thinker", slots=1)
    stage.open(make_request("rejoin"))
    effects = stage.do(ev.AttemptEnded(link=first, slot=2, terminal=FULL))
    assert not of_kind(effects, fx.SubmitAttempts), "it comes back after a while"
    effects = stage.rows(first, CoreStage.text(1, 0, "a", end=True))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.request_id, submit.stage, submit.link) == ("r1", 1, first)
    (submit,) = of_kind(stage.wait(0.05), fx.SubmitAttempts)
    assert (submit.request_id, submit.link) == ("r2", first)


def test_a_slot_is_kept_for_who_goes_first_until_there_is_room_for_all_of_it() -> None:
    stage = CoreStage()
    stage.open(make_request("echo"))
    lost, _ = stage.replica("encoder", ResumeContract.REPLAY, slots=2)
    stage.open(make_request("paint"))
    kept, _ = stage.replica("encoder", ResumeContract.REPLAY, slots=2)
    stage.open(make_request("paint"))
    stage.do(ev.ReplicaLost(link=lost))
    stage.do(ev.AttemptUnknown(link=kept, slot=2))
    assert not of_kind(stage.wait(0.05), fx.SubmitAttempts), "two slots are wanted, one is free"
    effects = stage.do(ev.AttemptUnknown(link=kept, slot=1))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.request_id, len(submit.roles)) == ("r2", 2)


def test_who_goes_on_after_a_loss_goes_before_everybody_else() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS, slots=1)
    stage.open(make_request("echo"))
    stage.open(make_request("twice"))
    effects = stage.do(ev.AttemptUnknown(link=thinker, slot=1))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert submit.request_id == "r2"
    stage.open(make_request("talk"))
    stage.wait(0.05)
    effects = stage.do(ev.AbortAsked(link=1, slot=2, cause="asked"))
    effects += stage.do(ev.AttemptUnknown(link=thinker, slot=2))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert submit.request_id == "r1"


def test_who_waits_for_slots_that_waiting_readers_hold_gives_up_after_a_while() -> None:
    """Both makers are lost, and before they are back their readers have taken the slots."""
    stage = CoreStage(CoreSettings(redrive_s=5.0), mesh=parse_mesh(CHAIN))
    shared, _ = stage.replica("shared", ResumeContract.TOKENS, slots=2)
    stage.open(make_request("chain"))
    stage.open(make_request("chain"))
    for slot in (1, 2):
        stage.rows(shared, Row(slot, lane_of(0, 0, Modality.TEXT), 0, 1, "a", [7]))
    both = [ev.AttemptUnknown(link=shared, slot=slot) for slot in (1, 2)]
    effects = [effect for event in both for effect in stage.do(event)]
    assert [submit.stage for submit in of_kind(effects, fx.SubmitAttempts)] == [1, 1]
    assert not of_kind(stage.wait(4.9), fx.EndRequest)
    effects = stage.wait(0.2)
    (abort,) = of_kind(effects, fx.AbortAttempt)
    (end,) = of_kind(stage.do(ev.AttemptUnknown(link=shared, slot=abort.slot)), fx.EndRequest)
    assert end.terminal.error is not None
    assert (end.terminal.error.reason, end.terminal.error.stage) == ("replica_lost", "maker")
    assert stage.core.request_view("r2") is not None
    assert stage.core.requests_open == 1, "the other one has the slot that came free"


def test_who_waits_for_a_slot_that_others_use_goes_on_waiting() -> None:
    stage = CoreStage(CoreSettings(redrive_s=5.0))
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS, slots=1)
    stage.open(make_request("echo"))
    stage.open(make_request("talk"))
    stage.do(ev.AttemptUnknown(link=thinker, slot=1))
    assert not of_kind(stage.wait(20.0), fx.EndRequest)
    effects = stage.rows(thinker, CoreStage.text(2, 0, "a", end=True))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert submit.request_id == "r1"


def apart(slots: int, contract: ResumeContract = ResumeContract.NONE) -> tuple[CoreStage, int, int]:
    """Two encoders whose pool lets companions run apart, with so many slots each."""
    stage = CoreStage(mesh=core_mesh(apart=True))
    first, _ = stage.replica("encoder", contract, slots=slots)
    second, _ = stage.replica("encoder", contract, slots=slots)
    stage.replica("painter")
    return stage, first, second


def roles_of(effects: list[fx.Effect]) -> list[tuple[int, list[int]]]:
    """Tell who got which roles."""
    submits = of_kind(effects, fx.SubmitAttempts)
    return [(submit.link, [role.role for role in submit.roles]) for submit in submits]


def test_companions_may_run_apart_where_no_replica_has_room_for_all() -> None:
    stage, first, second = apart(slots=1)
    assert roles_of(stage.open(make_request("paint"))[1]) == [(first, [0]), (second, [1])]
    tensors = [Row(1, lane_of(0, role, Modality.TENSOR), 0, 1, end=END) for role in (0, 1)]
    assert not of_kind(stage.rows(first, tensors[0]), fx.SubmitAttempts)
    (painter,) = of_kind(stage.rows(second, tensors[1]), fx.SubmitAttempts)
    assert len(painter.sources) == 2


def test_companions_stay_together_where_there_is_room_for_all() -> None:
    stage, first, second = apart(slots=3)
    seen = [roles_of(stage.open(make_request("paint"))[1]) for _ in range(3)]
    assert seen == [[(first, [0, 1])], [(second, [0, 1])], [(first, [0]), (second, [1])]]


def test_a_companion_that_waits_apart_is_placed_as_soon_as_there_is_any_slot() -> None:
    stage, first, second = apart(slots=1)
    stage.open(make_request("paint"))
    assert not of_kind(stage.open(make_request("paint"))[1], fx.SubmitAttempts)
    tensor = Row(1, lane_of(0, 0, Modality.TENSOR), 0, 1, end=END)
    assert roles_of(stage.rows(first, tensor)) == [(first, [0])]
    tensor = Row(1, lane_of(0, 1, Modality.TENSOR), 0, 1, end=END)
    effects = stage.rows(second, tensor)
    assert (second, [1]) in roles_of(effects)


def test_a_companion_that_is_refused_while_the_rest_waits_is_placed_again() -> None:
    stage, first, second = apart(slots=1)
    stage.open(make_request("paint"))
    effects = stage.do(ev.AttemptEnded(link=second, slot=1, terminal=FULL))
    assert roles_of(effects + stage.wait(0.1)) == [(second, [1])]
    stage.do(ev.AttemptEnded(link=first, slot=1, terminal=FULL))
    assert roles_of(stage.wait(1.0))[:1] == [(first, [0])]


def test_a_companion_that_is_refused_while_the_choice_is_being_made_again_is_not_forgotten() -> (
    None
):
    stage = CoreStage()
    encoder, _ = stage.replica("encoder", ResumeContract.REPLAY, slots=2)
    stage.replica("painter")
    stage.open(make_request("paint"))
    stage.do(ev.AttemptUnknown(link=encoder, slot=1))
    stage.do(ev.AttemptEnded(link=encoder, slot=2, terminal=FULL))
    assert roles_of(stage.wait(1.0)) == [(encoder, [0, 1])]


def test_who_avoids_a_replica_after_a_loss_keeps_nobody_from_it() -> None:
    """The first in the queue was lost and refused there; it waits for the other one."""
    stage = CoreStage(CoreSettings(redrive_s=5.0))
    first, _ = stage.replica("thinker", ResumeContract.TOKENS, slots=2)
    stage.open(make_request("twice"))
    stage.open(make_request("echo"))
    second, _ = stage.replica("thinker", ResumeContract.TOKENS, slots=1)
    stage.open(make_request("talk"))
    stage.do(ev.AttemptUnknown(link=first, slot=2))
    assert roles_of(stage.wait(0.05)) == [(first, [0])]
    refused = stage.do(ev.AttemptEnded(link=first, slot=3, terminal=FULL))
    assert roles_of(refused + stage.wait(1.0)) == []
    assert roles_of(stage.open(make_request("rejoin"))[1]) == [(first, [0])]
    effects = stage.rows(first, CoreStage.text(1, 0, "a", end=True))
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.request_id, submit.stage, submit.link) == ("r1", 1, first)
    effects = stage.rows(second, CoreStage.text(1, 0, "a", end=True))
    assert [(s.request_id, s.link) for s in of_kind(effects, fx.SubmitAttempts)] == [("r2", second)]


def test_who_avoids_a_replica_after_a_loss_comes_back_to_it_in_the_end() -> None:
    stage = CoreStage(CoreSettings(redrive_s=5.0))
    first, _ = stage.replica("thinker", ResumeContract.TOKENS, slots=2)
    stage.open(make_request("echo"))
    stage.replica("thinker", ResumeContract.TOKENS, slots=1)
    stage.open(make_request("talk"))
    stage.do(ev.AttemptUnknown(link=first, slot=1))
    assert roles_of(stage.wait(0.05)) == [(first, [0])]
    stage.do(ev.AttemptEnded(link=first, slot=2, terminal=FULL))
    assert roles_of(stage.wait(4.9)) == []
    assert roles_of(stage.wait(0.2)) == [(first, [0])]


def test_choices_that_wait_for_a_home_go_where_their_request_goes() -> None:
    """One choice is refused at their home and goes elsewhere; the other one goes along."""
    stage = CoreStage()
    first, _ = stage.replica("thinker", slots=1)
    second, _ = stage.replica("thinker", slots=1)
    effects = stage.open(make_request("echo", choices=2))[1]
    assert roles_of(effects) == [(first, [0])]
    effects = stage.do(ev.AttemptEnded(link=first, slot=1, terminal=FULL))
    assert roles_of(effects + stage.wait(0.5)) == [(second, [0])]
    effects = stage.rows(second, CoreStage.text(1, 0, "a", end=True))
    assert roles_of(effects) == [(second, [1])]
