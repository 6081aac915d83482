"""The path of outputs."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Modality, lane_of
from tests.helpers.core_stage import CoreStage, make_request, of_kind

TEXT = CoreStage.text


def talking(settings: CoreSettings | None = None) -> tuple[CoreStage, int, int]:
    """Make a core with a thinker and a talker, and one open request of both."""
    stage = CoreStage(settings)
    thinker, _ = stage.replica("thinker")
    talker, _ = stage.replica("talker")
    stage.open(make_request("talk"))
    return stage, thinker, talker


def test_a_message_for_many_requests_leaves_as_one_effect_in_the_same_order() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker", slots=8)
    for _ in range(2):
        stage.open(make_request("echo", choices=2))
    (sent,) = stage.rows(
        thinker, *(TEXT(slot, 0, "a", role=(slot - 1) % 2) for slot in (3, 1, 4, 2))
    )
    assert isinstance(sent, fx.SendRows)
    assert sent.link == CoreStage.CLIENT
    assert [(row.slot, row.lane >> 4) for row in sent.rows] == [(2, 0), (1, 0), (2, 1), (1, 1)]


def test_the_row_itself_goes_to_the_client_with_the_slot_replaced() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("twice"))
    slot, _ = stage.open(make_request("echo"))
    row = TEXT(2, 0, "a")
    (sent,) = of_kind(stage.rows(thinker, row), fx.SendRows)
    assert sent.rows[0] is row
    assert row.slot == slot


def test_an_attempt_that_reads_a_lane_gets_rows_of_its_own() -> None:
    stage, thinker, talker = talking()
    row = TEXT(1, 0, "a")
    to_client, to_talker = of_kind(stage.rows(thinker, row), fx.SendRows)
    assert (to_client.link, to_talker.link) == (CoreStage.CLIENT, talker)
    assert to_client.rows[0] is row
    assert to_talker.rows[0] is not row
    assert to_talker.rows[0].text == "a"


@pytest.mark.invariant("ORCH-INV-108")
def test_the_client_gets_an_output_before_a_stage_does() -> None:
    stage, thinker, talker = talking()
    stage.rows(thinker, TEXT(1, 0, "a"))
    stage.do(
        ev.InputCreditGranted(
            link=talker, grants=[Grant(1, lane_of(0, 0, Modality.TEXT), 100, 1 << 20)]
        )
    )
    effects = stage.rows(thinker, TEXT(1, 1, "b"), TEXT(1, 2, "c"))
    assert [effect.link for effect in of_kind(effects, fx.SendRows)] == [CoreStage.CLIENT, talker]
    assert [row.text for row in of_kind(effects, fx.SendRows)[1].rows] == ["b", "c"]


def test_no_credit_is_given_to_an_attempt_that_just_ended() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    lane = lane_of(0, 0, Modality.TEXT)
    effects = stage.rows(thinker, Row(1, lane, 0, 63, "x"), TEXT(1, 63, "y", end=True))
    assert len(of_kind(effects, fx.SendGrants)) == 1
    assert len(of_kind(effects, fx.EndRequest)) == 1
    stage.open(make_request("echo"))
    effects = stage.rows(thinker, Row(2, lane, 0, 64, "x", end=TEXT(1, 0, "", end=True).end))
    assert not of_kind(effects, fx.SendGrants)


def test_every_row_is_counted_once_also_when_it_is_dropped() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.rows(thinker, TEXT(1, 0, "a"), TEXT(1, 0, "a"), TEXT(99, 0, "a"))
    counts = stage.core.counts
    assert (counts.rows_repeated, counts.rows_late, counts.protocol_errors) == (1, 1, 0)
    stage.rows(thinker, TEXT(1, 5, "a"), TEXT(1, 6, "a"))
    assert (counts.rows_repeated, counts.rows_late, counts.protocol_errors) == (1, 2, 1)


def test_usage_counts_what_the_client_was_given_by_modality() -> None:
    stage, thinker, talker = talking()
    stage.rows(thinker, TEXT(1, 0, "a"), TEXT(1, 1, "b", end=True))
    lane = lane_of(1, 0, Modality.AUDIO)
    sound = Row(1, lane, 0, 240, body=Body(inline=b"x" * 480), end=TEXT(1, 0, "", end=True).end)
    (end,) = of_kind(stage.rows(talker, sound), fx.EndRequest)
    assert end.terminal.usage.completion_tokens == 2
    assert end.terminal.usage.audio_output_samples == 240
    assert end.terminal.usage.complete


def test_a_journal_that_drains_is_not_full() -> None:
    stage, thinker, _ = talking(CoreSettings(journal_bytes_max=8))
    for pos in range(40):
        effects = stage.rows(thinker, TEXT(1, pos, "abcd"))
        assert not of_kind(effects, fx.AbortAttempt)
    assert stage.core.requests_open == 1


def one_turn(mirrors: bool = False) -> tuple[CoreStage, int]:
    """Let a conversation come to the run of its second stage; give that one's link."""
    stage = CoreStage(mirrors=mirrors)
    listener, _ = stage.replica("listener")
    mixer, _ = stage.replica("mixer")
    slot, _ = stage.converse(make_request("turns"))
    stage.append(slot, "a", segment_end=True)
    stage.rows(listener, TEXT(1, 0, "A", end=True))
    return stage, mixer


@pytest.mark.invariant("ORCH-INV-143")
def test_the_end_of_a_run_is_the_end_of_a_segment_and_not_of_the_request() -> None:
    stage, mixer = one_turn()
    (sent,) = of_kind(stage.rows(mixer, TEXT(1, 0, "x", stage=1, end=True)), fx.SendRows)
    (row,) = sent.rows
    assert (row.segment_end, row.end) == (True, None)
    assert stage.core.requests_open == 1
    assert not of_kind(stage.append(1, "b"), fx.SubmitAttempts)
    effects = stage.append(1, segment_end=True)
    assert of_kind(effects, fx.SubmitAttempts)


def test_no_credit_is_given_to_a_run_that_just_ended() -> None:
    stage, mixer = one_turn()
    lane = lane_of(1, 0, Modality.TEXT)
    effects = stage.rows(mixer, Row(1, lane, 0, 63, "x"), TEXT(1, 63, "y", stage=1, end=True))
    assert len(of_kind(effects, fx.SendGrants)) == 1


def test_a_run_begins_at_position_0_for_its_worker_and_behind_the_last_for_its_client() -> None:
    stage, mixer = one_turn()
    stage.rows(mixer, TEXT(1, 0, "x", stage=1, end=True))
    stage.append(1, "b", segment_end=True)
    stage.rows(2, TEXT(2, 0, "B", end=True))
    (sent,) = of_kind(stage.rows(mixer, TEXT(2, 0, "y", stage=1)), fx.SendRows)
    assert [row.pos for row in sent.rows] == [1]
    effects = stage.rows(mixer, TEXT(2, 3, "?", stage=1))
    assert of_kind(effects, fx.AbortAttempt), "a gap in a run is a gap"
