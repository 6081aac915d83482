"""Requests that another owner had."""

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from stagemesh.link.core import LaneJournal, Placed, Row
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import End, FinishReason, Outcome, Usage
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind

TOKENS, REPLAY = ResumeContract.TOKENS, ResumeContract.REPLAY
THOUGHT, SOUND = lane_of(0, 0, Modality.TEXT), lane_of(1, 0, Modality.AUDIO)
SAID = Row(0, THOUGHT, 0, 2, "ab")


def thought(*, end: bool = False, rows: bool = True) -> LaneJournal:
    row = Row(0, THOUGHT, 0, 2, "ab", end=END if end else None)
    return LaneJournal(
        lane=THOUGHT,
        next=2,
        ids=[7, 8],
        rows=[row] if rows else [],
        visible_pos=2,
        end=END if end else None,
    )


def placed(stage: int) -> Placed:
    return Placed(stage=stage, role=0, attempt=3, replica_id="somewhere", incarnation=9)


def test_a_journal_without_the_rows_that_a_stage_reads_is_of_no_use_to_it() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("thinker", TOKENS)
    stage.replica("talker", REPLAY)
    lanes = [thought(rows=False), LaneJournal(lane=SOUND, next=160, visible_pos=160)]
    _, effects = stage.open(make_request("talk"), epoch=2, lanes=lanes)
    assert not of_kind(effects, fx.SubmitAttempts)
    (end,) = of_kind(effects, fx.EndRequest)
    assert end.terminal.error is not None
    assert end.terminal.error.stage == "talker"


def test_the_journal_of_another_revision_is_handed_back_untouched() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("thinker", TOKENS)
    slot, effects = stage.open(make_request("echo"), epoch=2, lanes=[thought()], revision="another")
    assert effects == [fx.HandBackRequest(link=stage.CLIENT, slot=slot, request_id=f"r{slot}")]
    mine = stage.core.models[0].revision
    _, effects = stage.open(make_request("echo"), epoch=2, lanes=[thought()], revision=mine)
    assert of_kind(effects, fx.SubmitAttempts)


def test_attempts_are_counted_anew_under_every_epoch() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("thinker", TOKENS)
    _, effects = stage.open(make_request("echo"), epoch=2, lanes=[thought()], placed=[placed(0)])
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.epoch, submit.attempt) == (2, 1)


def test_usage_is_what_was_given_under_all_epochs() -> None:
    stage = CoreStage(mirrors=True)
    thinker, _ = stage.replica("thinker", TOKENS)
    stage.open(make_request("echo"), epoch=2, lanes=[thought()])
    row = CoreStage.text(1, 2, "c")
    row.end = End(finish_reason=FinishReason.STOP, usage=Usage(prompt_tokens=5))
    (end,) = of_kind(stage.rows(thinker, row), fx.EndRequest)
    assert end.terminal.usage == Usage(prompt_tokens=5, completion_tokens=3)


def test_the_usage_of_a_lane_that_had_ended_is_in_its_end() -> None:
    stage = CoreStage(mirrors=True)
    ended = thought(end=True)
    ended.end = End(finish_reason=FinishReason.STOP, usage=Usage(prompt_tokens=5))
    (end,) = of_kind(stage.open(make_request("echo"), epoch=2, lanes=[ended])[1], fx.EndRequest)
    assert end.terminal.outcome is Outcome.COMPLETED
    assert end.terminal.usage == Usage(prompt_tokens=5, completion_tokens=2)


def test_a_request_that_had_shown_something_fails_and_is_not_rejected() -> None:
    stage = CoreStage(mirrors=True)
    stage.open(make_request("echo"), epoch=2, lanes=[thought()])
    (end,) = of_kind(stage.wait(10.0), fx.EndRequest)
    assert end.terminal.outcome is Outcome.FAILED


def test_the_worker_gets_no_credit_for_what_another_one_gave() -> None:
    stage = CoreStage(mirrors=True)
    thinker, _ = stage.replica("thinker", TOKENS)
    talker, _ = stage.replica("talker", REPLAY, units=1)
    whole = Row(0, THOUGHT, 0, 60, "x" * 60)
    given = LaneJournal(lane=THOUGHT, next=60, ids=[7] * 60, rows=[whole], visible_pos=60)
    stage.open(make_request("talk"), epoch=2, lanes=[given])
    grants = of_kind(stage.do(ev.InputCreditGranted(link=talker, grants=[])), fx.SendGrants)
    assert not grants
    row = CoreStage.text(1, 60, "a")
    row.ids = [8]
    assert not of_kind(stage.rows(thinker, row), fx.SendGrants)


def test_payloads_are_claimed_where_they_lie() -> None:
    stage = CoreStage(mirrors=True)
    encoder, _ = stage.replica("encoder", ResumeContract.RESTART)
    other, _ = stage.replica("encoder", ResumeContract.RESTART)
    lane = lane_of(0, 0, Modality.TENSOR)
    handle = Handle(
        handle_id="p",
        request_id="r1",
        holder_id=f"encoder-{encoder}",
        incarnation=encoder,
        address="",
    )
    row = Row(0, lane, 0, 1, body=Body(handle=handle), end=END)
    given = LaneJournal(lane=lane, next=1, rows=[row], end=END)
    _, effects = stage.open(make_request("paint"), epoch=2, lanes=[given])
    fences = {fence.link: fence.handle_ids for fence in of_kind(effects, fx.FenceRequest)}
    assert fences == {encoder: ("p",), other: ()}
    renewed = of_kind(stage.wait(20.0), fx.RenewHandles)
    assert [renewal.link for renewal in renewed] == [encoder]


def test_a_first_owner_fences_nobody() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("thinker", TOKENS)
    assert not of_kind(stage.open(make_request("echo"))[1], fx.FenceRequest)
