"""The log of a lane."""

from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.journal import LaneLog, covers, tail_of
from stagemesh.link.core import LaneDigest, LaneJournal, Row
from stagemesh.media import Body, Modality
from tests.helpers.core_stage import END

TOKENS, REPLAY = ResumeContract.TOKENS, ResumeContract.REPLAY


def begun(contract: ResumeContract, modality: Modality = Modality.TEXT) -> LaneLog:
    log = LaneLog.begun(contract, modality, 0)
    assert log is not None
    return log


def digest_of(text: str) -> bytes:
    digest = LaneDigest()
    digest.add_bytes(text.encode())
    return digest.value


def test_ids_are_kept_in_the_order_of_their_positions() -> None:
    log = begun(TOKENS)
    log.add(Row(1, 1, 0, 2, "ab", [7, 8]))
    log.add(Row(1, 1, 2, 0, "held back"))
    log.add(Row(1, 1, 2, 1, "c", [9], end=END))
    assert tail_of(1, 3, log, TOKENS).ids == [7, 8, 9]


def test_ids_that_were_not_told_for_every_position_are_dropped() -> None:
    for row in (Row(1, 1, 1, 1, "b"), Row(1, 1, 1, 2, "b", [8]), Row(1, 1, 2, 1, "b", [8])):
        log = begun(TOKENS)
        log.add(Row(1, 1, 0, 1, "a", [7]))
        log.add(row)
        assert log.ids is None


def test_a_digest_does_not_depend_on_how_a_lane_was_cut() -> None:
    log = begun(REPLAY)
    log.add(Row(1, 1, 0, 1, "a"))
    log.add(Row(1, 1, 1, 2, "bc"))
    assert tail_of(1, 3, log, REPLAY).digest == digest_of("abc")
    sound = begun(REPLAY, Modality.AUDIO)
    sound.add(Row(1, 2, 0, 3, body=Body(inline=b"abc")))
    assert tail_of(2, 3, sound, REPLAY).digest == digest_of("abc")


def test_what_is_kept_follows_from_the_contract() -> None:
    assert LaneLog.begun(ResumeContract.RESTART, Modality.TEXT, 0) is None
    assert LaneLog.begun(ResumeContract.NONE, Modality.TEXT, 0) is None
    assert begun(TOKENS).digest is None
    assert LaneLog.begun(TOKENS, Modality.AUDIO, 0) is None
    assert begun(ResumeContract.PER_INPUT, Modality.AUDIO).digest is not None


def test_a_lane_of_which_the_beginning_was_not_kept_knows_nothing() -> None:
    ids = LaneLog.begun(TOKENS, Modality.TEXT, 5)
    digest = LaneLog.begun(REPLAY, Modality.TEXT, 5)
    assert ids is not None
    assert digest is not None
    digest.add(Row(1, 1, 5, 1, "x"))
    assert tail_of(1, 6, ids, TOKENS).ids == []
    assert tail_of(1, 6, digest, REPLAY).digest == b""


def test_another_owners_digest_holds_until_the_lane_grows() -> None:
    log = LaneLog.given(LaneJournal(lane=2, next=3, digest=b"told"))
    assert tail_of(2, 3, log, REPLAY).digest == b"told"
    log.add(Row(1, 2, 3, 1, body=Body(inline=b"x")))
    assert tail_of(2, 4, log, REPLAY).digest == b""


def test_another_owners_rows_give_the_digest_and_it_can_be_carried_on() -> None:
    given = LaneJournal(lane=1, next=2, ids=[7, 8], rows=[Row(0, 1, 0, 2, "ab")])
    log = LaneLog.given(given)
    log.add(Row(1, 1, 2, 1, "c", [9]))
    assert tail_of(1, 3, log, REPLAY).digest == digest_of("abc")
    assert tail_of(1, 3, log, TOKENS).ids == [7, 8, 9]


def test_another_owners_ids_count_only_if_they_are_all_there() -> None:
    assert LaneLog.given(LaneJournal(lane=1, next=3, ids=[7, 8])).ids is None


def test_the_outputs_of_the_last_input_begin_where_its_first_did() -> None:
    log = begun(ResumeContract.PER_INPUT, Modality.AUDIO)
    for pos, origin in ((0, (0, 2)), (160, (2, 5)), (320, (2, 5))):
        log.add(Row(1, 2, pos, 160, body=Body(inline=b"x"), origin=origin))
    assert (log.origin, log.origin_pos) == ((2, 5), 160)
    assert tail_of(2, 480, log, ResumeContract.PER_INPUT).next == 160


def test_nothing_is_told_of_a_lane_that_has_not_begun() -> None:
    assert tail_of(1, 0, begun(REPLAY), REPLAY) == LaneJournal(lane=1)


def test_rows_cover_a_lane_if_they_join_from_its_start_to_its_end() -> None:
    a, b = Row(0, 1, 0, 1, "a"), Row(0, 1, 1, 1, "b")
    assert covers([a, b, Row(0, 1, 2, 0, end=END)], 2)
    assert not covers([a, b], 3)
    assert not covers([b], 2)
    assert not covers([a, Row(0, 1, 2, 1)], 3)
    assert covers([], 0)


def test_a_log_of_a_run_is_of_what_came_since_it_began() -> None:
    log = LaneLog.begun(TOKENS, Modality.TEXT, 5, 5)
    assert log is not None
    log.add(Row(1, 1, 5, 2, "ab", [7, 8]))
    assert tail_of(1, 2, log, TOKENS).ids == [7, 8]
    replayed = LaneLog.begun(REPLAY, Modality.TEXT, 5, 5)
    assert replayed is not None
    replayed.add(Row(1, 1, 5, 2, "ab"))
    assert tail_of(1, 2, replayed, REPLAY).digest == digest_of("ab")


def test_a_journal_of_runs_gives_the_log_of_the_present_one() -> None:
    rows = [Row(0, 1, 0, 2, "ab", segment_end=True), Row(0, 1, 2, 1, "c")]
    log = LaneLog.given(LaneJournal(lane=1, next=3, ids=[9], rows=rows, segments=1, segment_pos=2))
    assert log.ids is not None
    assert [*log.ids] == [9]
    assert tail_of(1, 1, log, REPLAY).digest == digest_of("c")
    over = LaneLog.given(LaneJournal(lane=1, next=2, rows=rows[:1], segments=1, segment_pos=2))
    over.add(Row(1, 1, 2, 1, "d", [4]))
    assert tail_of(1, 1, over, TOKENS).ids == [4]
