"""The way in which a lost group goes on."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core.contracts import ResumeContract
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, lane_of
from tests.helpers.core_stage import CoreStage, make_request, of_kind

TEXT = CoreStage.text
TOKENS, PER_INPUT, REPLAY, RESTART, NONE = ResumeContract
SOUND = lane_of(1, 0, Modality.AUDIO)


def submitted(effects: list[fx.Effect]) -> fx.SubmitAttempts | None:
    """Give the one submission, or None if the request has failed instead."""
    submits = of_kind(effects, fx.SubmitAttempts)
    ends = of_kind(effects, fx.EndRequest)
    assert len(submits) + len(ends) == 1
    return submits[0] if submits else None


def thinker_lost(
    contract: ResumeContract, *, deterministic: bool = True, given: bool
) -> fx.SubmitAttempts | None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", contract, deterministic=deterministic)
    stage.replica("thinker", contract, deterministic=deterministic)
    stage.open(make_request("echo"))
    if given:
        row = TEXT(1, 0, "a")
        row.ids = [7]
        stage.rows(first, row)
    return submitted(stage.lose(first))


@pytest.mark.parametrize("contract", [TOKENS, PER_INPUT, REPLAY, RESTART])
def test_what_has_given_nothing_begins_anew(contract: ResumeContract) -> None:
    submit = thinker_lost(contract, given=False)
    assert submit is not None
    assert (submit.contract, submit.resume, submit.attempt) == (contract, (), 2)


@pytest.mark.parametrize("given", [True, False])
def test_what_cannot_be_made_again_fails(given: bool) -> None:
    assert thinker_lost(NONE, given=given) is None


def test_what_was_shown_is_gone_on_from_by_ids_or_by_a_replay() -> None:
    by_ids, again = thinker_lost(TOKENS, given=True), thinker_lost(REPLAY, given=True)
    assert by_ids is not None
    assert again is not None
    (mark,) = by_ids.resume
    assert (by_ids.contract, mark.next, mark.ids, mark.digest) == (TOKENS, 1, [7], b"")
    (mark,) = again.resume
    assert (again.contract, mark.next, mark.ids) == (REPLAY, 1, [])
    assert len(mark.digest) == 16


@pytest.mark.parametrize("contract", [PER_INPUT, REPLAY, RESTART])
def test_what_was_shown_cannot_begin_again(contract: ResumeContract) -> None:
    assert thinker_lost(contract, deterministic=False, given=True) is None


def test_a_stage_whose_inputs_are_unknown_begins_again_if_it_is_deterministic() -> None:
    submit = thinker_lost(PER_INPUT, given=True)
    assert submit is not None
    assert submit.contract is REPLAY


def test_an_input_that_begins_inside_a_row_is_replayed_from_the_start() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker", TOKENS)
    talker, _ = stage.replica("talker", PER_INPUT)
    stage.replica("talker", PER_INPUT)
    stage.open(make_request("talk"))
    stage.rows(thinker, Row(1, lane_of(0, 0, Modality.TEXT), 0, 4, "One. Two", ids=[1, 2, 3, 4]))
    sound = Row(1, SOUND, 0, 160, body=Body(inline=b"x"), origin=(2, 4))
    stage.rows(talker, sound)
    submit = submitted(stage.lose(talker))
    assert submit is not None
    assert submit.contract is REPLAY


def test_a_stage_of_tokens_that_gives_other_things_cannot_go_on_in_their_middle() -> None:
    stage = CoreStage()
    first, _ = stage.replica("encoder", TOKENS)
    stage.replica("encoder", TOKENS)
    stage.replica("painter", REPLAY)
    stage.open(make_request("paint"))
    lane = lane_of(0, 0, Modality.TENSOR)
    stage.rows(first, Row(1, lane, 0, 1, body=Body(inline=b"x")))
    submit = submitted(stage.lose(first))
    assert submit is not None
    assert (submit.attempt, submit.resume) == (2, ())


def test_nothing_begins_again_that_something_irreplaceable_was_made_of() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", RESTART)
    stage.replica("thinker", RESTART)
    stage.replica("coder", NONE)
    stage.replica("mixer", REPLAY)
    stage.open(make_request("rejoin"))
    stage.rows(first, TEXT(1, 0, "a"))
    effects = stage.lose(first)
    assert not of_kind(effects, fx.SubmitAttempts)
    assert of_kind(effects, fx.AbortAttempt)


def test_a_caller_who_keeps_no_journal_is_not_told_that_lanes_begin_again() -> None:
    for mirrors in (True, False):
        stage = CoreStage(mirrors=mirrors)
        first, _ = stage.replica("thinker", RESTART)
        stage.replica("thinker", RESTART)
        stage.replica("coder", REPLAY)
        stage.replica("mixer", REPLAY)
        stage.open(make_request("rejoin"))
        stage.rows(first, TEXT(1, 0, "a"))
        resets = of_kind(stage.lose(first), fx.ResetLanes)
        assert [reset.stages for reset in resets] == ([(0, 1, 2)] if mirrors else [])


def test_the_way_is_judged_by_the_replica_that_takes_it() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker", TOKENS)
    stage.open(make_request("echo"))
    row = TEXT(1, 0, "a")
    row.ids = [7]
    stage.rows(first, row)
    assert not of_kind(stage.lose(first), fx.EndRequest)
    (end,) = of_kind(stage.replica("thinker", RESTART)[1], fx.EndRequest)
    assert end.terminal.error is not None
    assert end.terminal.error.reason == "replica_lost"


def test_who_waits_for_a_slot_waits_for_its_input_again_where_that_begins_again() -> None:
    stage = CoreStage()
    links = [stage.replica("thinker", ResumeContract.RESTART)[0] for _ in range(2)]
    (first,) = of_kind(stage.open(make_request("rejoin"))[1], fx.SubmitAttempts)
    stage.rows(first.link, CoreStage.text(1, 0, "a"))
    (again,) = of_kind(stage.lose(first.link), fx.SubmitAttempts)
    assert again.link in links
    coder, effects = stage.replica("coder")
    assert not of_kind(effects, fx.SubmitAttempts)
    effects = stage.rows(again.link, CoreStage.text(1, 0, "b"))
    assert [order.stage for order in of_kind(effects, fx.SubmitAttempts)] == [1]
    (sent,) = [one for one in of_kind(effects, fx.SendRows) if one.link == coder]
    assert [row.text for row in sent.rows] == ["b"]


def test_who_had_enough_of_its_input_reads_it_again_where_that_begins_again() -> None:
    stage = CoreStage()
    for _ in range(2):
        stage.replica("thinker", ResumeContract.RESTART)
    coder, _ = stage.replica("coder", ResumeContract.RESTART)
    (first,) = of_kind(stage.open(make_request("rejoin"))[1], fx.SubmitAttempts)
    stage.rows(first.link, CoreStage.text(1, 0, "a"))
    stage.rows(coder, CoreStage.text(1, 0, "early", stage=1, end=True))
    (again,) = of_kind(stage.lose(first.link), fx.SubmitAttempts)
    effects = stage.rows(again.link, CoreStage.text(1, 0, "b"))
    assert [order.stage for order in of_kind(effects, fx.SubmitAttempts)] == [1]
