"""Plans."""

import pytest

from services.orchestrator.core.plan import CLIENT_STAGE, Plan, Planner, compile_plan
from stagemesh.errors import MeshError
from stagemesh.link.core import REQUEST_SOURCE
from stagemesh.media import Modality, split_lane
from stagemesh.outcome import ErrorCode
from stagemesh.pipeline import EdgeMode, parse_mesh
from tests.helpers.core_mesh import core_mesh

TEXT, AUDIO = Modality.TEXT, Modality.AUDIO


def plan(model: str, *give: Modality, choices: int = 1, audio: bool = False) -> Plan:
    return compile_plan(
        core_mesh().pipelines[model],
        modalities=frozenset(give),
        choices=choices,
        inputs=frozenset({TEXT, AUDIO} if audio else {TEXT}),
    )


def shape(plan: Plan) -> list[tuple[str, int, list[int]]]:
    return [(g.stage.name, g.choice, [role.role for role in g.roles]) for g in plan.groups]


def test_all_modalities_run_all_stages_in_order() -> None:
    assert shape(plan("relay3")) == [("thinker", 0, [0]), ("coder", 0, [0]), ("talker", 0, [0])]


def test_stages_that_no_wanted_modality_needs_are_left_out() -> None:
    assert shape(plan("relay3", TEXT)) == [("thinker", 0, [0])]
    assert len(plan("relay3", AUDIO).groups) == 3


def test_only_wanted_outputs_are_visible() -> None:
    (text,) = plan("talk", TEXT).visible
    assert split_lane(text) == (0, 0, TEXT)
    (audio,) = plan("talk", AUDIO).visible
    assert split_lane(audio) == (1, 0, AUDIO)
    assert plan("talk").visible == {text, audio}


def test_choices_fan_out_where_they_are_marked_and_downstream_of_it() -> None:
    assert shape(plan("paint", choices=2)) == [
        ("encoder", 0, [0, 2]),
        ("painter", 0, [0]),
        ("painter", 1, [1]),
    ]
    assert [choice for _, choice, _ in shape(plan("talk", choices=2))] == [0, 1, 0, 1]


def test_companions_have_the_roles_behind_the_choices_and_give_what_is_joined() -> None:
    encoder = plan("paint", choices=3).groups[0]
    assert [(r.role, r.companion) for r in encoder.roles] == [(0, ""), (3, "negative")]
    assert encoder.slots == 2
    assert all(split_lane(r.lanes[0]).modality is Modality.TENSOR for r in encoder.roles)


def test_a_consumer_reads_companions_beside_its_source() -> None:
    painter = plan("paint", choices=2).groups[2]
    read = [(split_lane(s.lane).role, s.companion, s.choice) for s in painter.sources]
    assert read == [(0, "", 1), (2, "negative", 1)]
    assert painter.stream_inputs == 0


def test_a_consumer_reads_its_own_choice_of_a_source_that_fans_out() -> None:
    talkers = plan("talk", choices=2).groups[2:]
    assert [split_lane(t.sources[0].lane).role for t in talkers] == [0, 1]
    assert [t.stream_inputs for t in talkers] == [1, 1]


def test_a_stage_with_when_runs_only_where_its_input_is() -> None:
    assert shape(plan("hear")) == [("thinker", 0, [0])]
    assert [name for name, _, _ in shape(plan("hear", audio=True))] == ["listener", "thinker"]
    assert plan("hear").groups[0].sources == ()


def test_readers_are_told_by_lane() -> None:
    rejoin = plan("rejoin")
    lane = rejoin.groups[0].roles[0].lanes[0]
    assert rejoin.readers[lane] == (1, 2)
    assert rejoin.readers.keys() & rejoin.visible == set()


def test_a_modality_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(MeshError) as caught:
        plan("echo", AUDIO)
    assert caught.value.info.code is ErrorCode.UNSUPPORTED
    assert caught.value.info.param == "modalities"


def test_several_choices_of_a_pipeline_without_any_are_refused() -> None:
    with pytest.raises(MeshError) as caught:
        plan("twice", choices=2)
    assert caught.value.info.param == "n"
    assert plan("twice", choices=1).choices == 1


def test_an_output_that_has_nothing_to_work_on_is_left_out_or_refused() -> None:
    mesh = parse_mesh(
        """
pools: {listener: {engine: synthetic, options: {gives: text}}}
pipelines:
  scribe:
    accepts: [text, audio]
    stages:
      listener: {pool: listener, when: input.audio, bridge: script}
      reader: {pool: listener, when: input.audio, inputs: [listener], bridge: script}
      writer: {pool: listener, inputs: [input, reader], bridge: script}
    outputs: {text: writer}
"""
    )
    pipeline = mesh.pipelines["scribe"]
    without = compile_plan(pipeline, modalities=frozenset(), choices=1, inputs=frozenset({TEXT}))
    assert [group.stage.name for group in without.groups] == ["writer"]


def test_the_same_question_gets_the_same_plan() -> None:
    planner, pipeline = Planner(), core_mesh().pipelines["talk"]
    first = planner.plan(pipeline, modalities=(TEXT, AUDIO), choices=2, inputs=frozenset({TEXT}))
    again = planner.plan(pipeline, modalities=(AUDIO, TEXT), choices=2, inputs=frozenset({TEXT}))
    assert first is again
    assert first is not planner.plan(
        pipeline, modalities=(TEXT, AUDIO), choices=1, inputs=frozenset({TEXT})
    )


def test_no_more_plans_are_kept_than_allowed() -> None:
    planner, pipeline = Planner(plans_max=4), core_mesh().pipelines["echo"]
    for choices in range(1, 10):
        planner.plan(pipeline, modalities=(), choices=choices, inputs=frozenset({TEXT}))
    assert len(planner) == 4


def test_a_streamed_input_is_a_source_of_those_who_hear_it() -> None:
    pipeline = core_mesh().pipelines["turns"]
    everything = frozenset({TEXT, AUDIO})
    streamed = compile_plan(
        pipeline, modalities=frozenset(), choices=1, inputs=everything, streamed=True
    )
    listener, mixer = streamed.groups
    [source] = listener.sources
    assert (source.lane, source.stage, source.mode) == (
        REQUEST_SOURCE,
        CLIENT_STAGE,
        EdgeMode.SEGMENT,
    )
    assert listener.segmented
    assert listener.reads_segments(REQUEST_SOURCE)
    assert not listener.reads_stream(REQUEST_SOURCE)
    assert mixer.reads_segments(listener.roles[0].lanes[0])
    at_once = compile_plan(pipeline, modalities=frozenset(), choices=1, inputs=everything)
    assert [s.mode for group in at_once.groups for s in group.sources] == [EdgeMode.WHOLE]
    assert not any(group.segmented for group in at_once.groups)


def test_a_pipeline_that_hears_nobody_cannot_be_conversed_with() -> None:
    with pytest.raises(MeshError) as caught:
        compile_plan(
            core_mesh().pipelines["echo"], modalities=frozenset(), choices=1,
            inputs=frozenset({TEXT}), streamed=True,
        )  # fmt: skip
    assert (caught.value.info.code, caught.value.info.param) == (ErrorCode.UNSUPPORTED, "model")
