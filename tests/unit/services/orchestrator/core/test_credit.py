"""Credit from the client to the worker."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Modality, lane_of
from tests.helpers.core_stage import CoreStage, make_request, of_kind

SMALL = CoreSettings(window_units=4, window_bytes=40)
THOUGHT = lane_of(0, 0, Modality.TEXT)


def granted(effects: list[fx.Effect], link: int) -> list[tuple[int, int, int]]:
    return [
        (grant.slot, grant.units, grant.bytes)
        for effect in of_kind(effects, fx.SendGrants)
        if effect.link == link
        for grant in effect.grants
    ]


def test_what_waits_for_the_client_is_settled_when_it_goes() -> None:
    stage = CoreStage(SMALL, units=2)
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    rows = [CoreStage.text(1, pos, "x") for pos in range(4)]
    assert granted(stage.rows(thinker, *rows), thinker) == [(1, 6, 42)]
    effects = stage.do(ev.CreditGranted(link=1, grants=[Grant(1, 0, 4, 1 << 20)]))
    assert granted(effects, thinker) == [(1, 8, 44)]


def test_sound_costs_bytes_only() -> None:
    stage = CoreStage(SMALL)
    thinker, _ = stage.replica("thinker")
    talker, _ = stage.replica("talker")
    stage.open(make_request("talk", give=(Modality.AUDIO,)))
    stage.rows(thinker, CoreStage.text(1, 0, "x"))
    sound = Row(1, lane_of(1, 0, Modality.AUDIO), 0, 24_000, body=Body(inline=b"x" * 30))
    assert granted(stage.rows(talker, sound), talker) == [(1, 4, 70)]


def test_a_lane_that_client_and_stage_read_is_settled_when_both_have_it() -> None:
    stage = CoreStage(SMALL, units=64)
    thinker, _ = stage.replica("thinker")
    talker, _ = stage.replica("talker", units=1)
    stage.open(make_request("talk"))
    assert granted(stage.rows(thinker, CoreStage.text(1, 0, "x")), thinker) == []
    assert granted(stage.rows(thinker, CoreStage.text(1, 1, "x")), thinker) == []
    effects = stage.do(ev.InputCreditGranted(link=talker, grants=[Grant(1, THOUGHT, 3, 1 << 20)]))
    assert granted(effects, thinker) == [(1, 6, 42)]


def test_a_reader_that_ends_early_sets_its_source_free() -> None:
    stage = CoreStage(SMALL, units=64)
    thinker, _ = stage.replica("thinker")
    talker, _ = stage.replica("talker", units=1)
    stage.open(make_request("talk"))
    stage.rows(thinker, CoreStage.text(1, 0, "x"))
    stage.rows(thinker, *(CoreStage.text(1, pos, "x") for pos in range(1, 4)))
    end = CoreStage.text(1, 0, "", end=True).end
    effects = stage.rows(talker, Row(1, lane_of(1, 0, Modality.AUDIO), 0, 0, end=end))
    assert granted(effects, thinker) == [(1, 8, 44)]
    assert not of_kind(effects, fx.AbortAttempt), "the client still wants the text"


@pytest.mark.invariant("ORCH-INV-104")
def test_the_next_attempt_gets_no_credit_for_what_the_last_one_sent() -> None:
    stage = CoreStage(SMALL, units=2)
    first, _ = stage.replica("thinker", ResumeContract.TOKENS)
    second, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.open(make_request("echo"))
    rows = [CoreStage.text(1, pos, "x") for pos in range(4)]
    for row in rows:
        row.ids = [row.pos]
    stage.rows(first, *rows)
    stage.lose(first)
    effects = stage.do(ev.CreditGranted(link=1, grants=[Grant(1, 0, 100, 1 << 20)]))
    assert [row.pos for sent in of_kind(effects, fx.SendRows) for row in sent.rows] == [2, 3]
    assert granted(effects, second) == []
    own = [CoreStage.text(1, pos, "x") for pos in (4, 5)]
    for row in own:
        row.ids = [row.pos]
    assert granted(stage.rows(second, *own), second) == [(1, 6, 50)]


def test_rows_that_had_come_before_give_their_credit_back() -> None:
    stage = CoreStage(SMALL)
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.rows(thinker, CoreStage.text(1, 0, "x"))
    again = [CoreStage.text(1, 0, "x") for _ in range(3)]
    assert granted(stage.rows(thinker, *again), thinker) == [(1, 6, 42), (1, 8, 44)]
