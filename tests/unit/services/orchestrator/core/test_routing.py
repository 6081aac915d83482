"""What a request does next."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, lane_of
from stagemesh.pipeline import parse_mesh
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind


def stages_of(effects: list[fx.Effect]) -> list[int]:
    return [submit.stage for submit in of_kind(effects, fx.SubmitAttempts)]


def test_a_stage_starts_once() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.replica("talker")
    assert stages_of(stage.open(make_request("talk"))[1]) == [0]
    assert stages_of(stage.rows(thinker, CoreStage.text(1, 0, "a"))) == [1]
    assert stages_of(stage.rows(thinker, CoreStage.text(1, 1, "b"))) == []
    assert stages_of(stage.rows(thinker, CoreStage.text(1, 2, "c", end=True))) == []


BESIDE = """\
pools:
  thinker: {engine: synthetic, options: {gives: [text, tensor]}}
  talker: {engine: synthetic, options: {gives: audio}}
pipelines:
  beside:
    stages:
      thinker: {pool: thinker, bridge: script}
      talker:
        pool: talker
        inputs: [{from: thinker, modality: tensor, mode: stream}]
        bridge: script
    outputs: {text: thinker, audio: talker}
"""


def test_a_stage_starts_with_what_it_reads_though_another_lane_began_before() -> None:
    stage = CoreStage(mesh=parse_mesh(BESIDE, "beside.yaml"))
    thinker, _ = stage.replica("thinker")
    stage.replica("talker")
    stage.open(make_request("beside"))
    assert stages_of(stage.rows(thinker, CoreStage.text(1, 0, "a"))) == []
    tensor = Row(1, lane_of(0, 0, Modality.TENSOR), 0, 1, body=Body(inline=b"t"))
    assert stages_of(stage.rows(thinker, tensor)) == [1]


@pytest.mark.parametrize("end", [False, True])
def test_a_stream_may_begin_with_its_end(end: bool) -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    talker, _ = stage.replica("talker")
    stage.open(make_request("talk"))
    effects = stage.rows(thinker, CoreStage.text(1, 0, "" if end else "a", end=end))
    assert stages_of(effects) == [1]
    (sent,) = [send for send in of_kind(effects, fx.SendRows) if send.link == talker]
    assert (sent.rows[0].end is not None) is end


def test_a_join_waits_for_everything_that_it_joins() -> None:
    stage = CoreStage()
    encoder, _ = stage.replica("encoder")
    stage.replica("painter")
    stage.open(make_request("paint"))
    lanes = [lane_of(0, role, Modality.TENSOR) for role in range(2)]
    body = Body(inline=b"t")
    assert stages_of(stage.rows(encoder, Row(2, lanes[1], 0, 1, body=body, end=END))) == []
    assert stages_of(stage.rows(encoder, Row(1, lanes[0], 0, 1, body=body))) == []
    assert stages_of(stage.rows(encoder, Row(1, lanes[0], 1, 0, end=END))) == [1]


@pytest.mark.invariant("ORCH-INV-100")
def test_nothing_starts_after_the_verdict() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.replica("talker")
    stage.open(make_request("talk"))
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    assert stages_of(stage.rows(thinker, CoreStage.text(1, 0, "a"))) == []
    assert stages_of(stage.wait(1.0)) == []
    assert stages_of(stage.replica("talker")[1]) == []


def test_two_readers_of_one_stage_both_get_all_of_it() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    coder, _ = stage.replica("coder")
    mixer, _ = stage.replica("mixer")
    stage.open(make_request("rejoin"))
    sent: dict[int, str] = {}
    effects = stage.rows(thinker, CoreStage.text(1, 0, "a"), CoreStage.text(1, 1, "b"))
    effects += stage.rows(coder, CoreStage.text(1, 0, "A", stage=1))
    effects += stage.rows(thinker, CoreStage.text(1, 2, "c", end=True))
    for send in of_kind(effects, fx.SendRows):
        for row in send.rows:
            if row.lane == lane_of(0, 0, Modality.TEXT):
                sent[send.link] = sent.get(send.link, "") + row.text
    assert sent == {coder: "abc", mixer: "abc"}
