"""Which rows of a request are taken."""

from services.gateway.core.intake import Intake
from stagemesh.link.core import Row, Step
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import End, FinishReason


def _row(
    pos: int, units: int = 1, *, stage: int = 0, role: int = 0, modality: Modality = Modality.TEXT
) -> Row:
    return Row(1, lane_of(stage, role, modality), pos, units)


def test_each_lane_has_a_cursor_of_its_own() -> None:
    intake = Intake(2, (Modality.TEXT, Modality.AUDIO))
    rows = [_row(0, 2), _row(0, role=1), _row(0, 7, stage=1, modality=Modality.AUDIO), _row(2)]
    assert [intake.check(row) for row in rows] == [Step.ACCEPT] * 4
    assert intake.check(_row(1)) is Step.DROP
    assert intake.check(_row(4)) is Step.GAP
    assert intake.expected(_row(0).lane) == 3


def test_lanes_that_were_not_asked_for_are_wrong() -> None:
    intake = Intake(2, (Modality.TEXT,))
    assert intake.check(_row(0, role=2)) is Step.GAP
    assert intake.check(_row(0, modality=Modality.AUDIO)) is Step.GAP
    assert intake.expected(_row(0, role=2).lane) == 0


def test_a_choice_has_one_lane_of_a_modality() -> None:
    intake = Intake(1, (Modality.TEXT,))
    assert intake.check(_row(0)) is Step.ACCEPT
    assert intake.check(_row(0, stage=1)) is Step.GAP


def test_nothing_comes_after_the_end_of_a_lane() -> None:
    intake = Intake(1, (Modality.TEXT,))
    last = _row(0)
    last.end = End(finish_reason=FinishReason.STOP)
    assert intake.check(last) is Step.ACCEPT
    assert intake.check(_row(1)) is Step.GAP
