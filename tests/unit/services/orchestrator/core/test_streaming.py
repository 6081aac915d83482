"""Streamed input."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.core.streaming import check_inputs
from stagemesh.errors import MeshError
from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.outcome import ErrorCode
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind


def piece(pos: int, text: str = "a") -> Row:
    return Row(1, REQUEST_SOURCE, pos, 1, text)


@pytest.mark.invariant("ORCH-INV-140")
def test_an_append_for_what_is_unknown_starts_nothing_and_is_answered_once() -> None:
    stage = CoreStage()
    stage.replica("listener")
    first = stage.do(ev.InputsAppended(link=CoreStage.CLIENT, rows=[piece(0), piece(1)]))
    assert first == [fx.AnswerUnknown(link=CoreStage.CLIENT, slot=1)]
    assert stage.do(ev.InputsAppended(link=CoreStage.CLIENT, rows=[piece(2)])) == []
    assert stage.core.counts.inputs_late == 3
    assert stage.do(ev.InputsAppended(link=99, rows=[piece(0)])) == []


@pytest.mark.invariant("ORCH-INV-141")
def test_a_conversation_holds_a_running_slot_only_while_there_is_something_to_do() -> None:
    stage = CoreStage()
    listener, _ = stage.replica("listener")
    slot, _ = stage.converse(make_request("listen"))
    assert stage.core.footprint()["idle"] == 1, "it has not said anything"
    stage.append(slot, "a")
    kept = stage.core.footprint()
    assert (kept["running"], kept["idle"], kept["attempts"]) == (0, 1, 1)
    stage.append(slot, end=True)
    kept = stage.core.footprint()
    assert (kept["running"], kept["idle"]) == (1, 0), "there is an answer to be made"
    stage.rows(listener, stage.text(1, 0, "a", end=True))
    assert not any(stage.core.footprint()[what] for what in ("running", "idle", "requests"))


def test_a_conversation_whose_worker_is_lost_wants_a_turn_to_go_on() -> None:
    stage = CoreStage()
    listener, _ = stage.replica("listener", ResumeContract.TOKENS)
    slot, _ = stage.converse(make_request("listen"))
    stage.append(slot, "a")
    stage.do(ev.ReplicaLost(link=listener))
    assert stage.core.footprint()["running"] == 1
    _, effects = stage.replica("listener", ResumeContract.TOKENS)
    effects += stage.wait(0.05)
    assert of_kind(effects, fx.SubmitAttempts)
    assert stage.core.footprint()["idle"] == 1


def test_what_a_client_says_before_it_is_admitted_is_kept() -> None:
    stage = CoreStage()
    for _ in range(2):
        stage.open(make_request("listen"))
    slot, _ = stage.converse(make_request("listen"))
    stage.append(slot, "a")
    assert stage.core.footprint()["input_bytes"] > 0
    stage.do(ev.AbortAsked(link=CoreStage.CLIENT, slot=1, cause="asked"))
    _, effects = stage.replica("listener")
    fed = [row for sent in of_kind(effects, fx.SendRows) for row in sent.rows]
    assert [row.text for row in fed] == ["a"]


def test_a_piece_that_comes_twice_is_dropped_and_its_credit_returned() -> None:
    stage = CoreStage(CoreSettings(window_units=2))
    stage.replica("listener")
    slot, _ = stage.converse(make_request("listen"))
    stage.append(slot, "a")
    effects = stage.do(ev.InputsAppended(link=CoreStage.CLIENT, rows=[piece(0)]))
    (granted,) = of_kind(effects, fx.SendGrants)
    assert granted.grants[0].units == 4
    assert stage.core.counts.rows_repeated == 1


def test_an_input_that_an_earlier_owner_was_given_is_whole_or_of_no_use() -> None:
    check_inputs([])
    check_inputs([piece(0), piece(1), Row(1, REQUEST_SOURCE, 2, 0, end=END)])
    ended = Row(1, REQUEST_SOURCE, 0, 0, end=END)
    for rows in ([piece(1)], [piece(0), piece(2)], [ended, piece(0)]):
        with pytest.raises(MeshError) as caught:
            check_inputs(rows)
        assert caught.value.info.code is ErrorCode.PROTOCOL
