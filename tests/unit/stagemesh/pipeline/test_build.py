import pytest

from stagemesh.media import Modality, Params, Sampling
from stagemesh.pipeline import (
    Clamp,
    Edge,
    EdgeMode,
    Fixed,
    Limits,
    Pipeline,
    ReplicaChoice,
    effective_params,
    parse_mesh,
)
from tests.helpers.mesh_texts import POOLS, mesh_text

VOICE = """
voice:
  aliases: [gpt-voice]
  deadline_s: 12
  limits: {running_max: 3}
  stages:
    talker: {pool: sound, inputs: [{from: thinker, mode: stream}], bridge: clauses}
    thinker:
      pool: words
      inputs: [input, listener]
      bridge_options: {system: "Be brief."}
      choices: true
      params:
        sampling: {tokens_max: 5, temperature: 1, stop: [a, b], ignore_eos: true}
        audio: {voice: joe, speed: 1}
        image: {width: 64, guidance_scale: 2}
    listener: {pool: words, when: input.audio}
  outputs: {text: thinker, audio: talker}
"""


def voice(text: str = VOICE, pools: str = POOLS) -> Pipeline:
    return parse_mesh(mesh_text(text).replace(POOLS, pools)).pipelines["voice"]


def test_stages_stand_in_topological_order_and_index_is_their_place() -> None:
    pipeline = voice()
    assert [stage.name for stage in pipeline.stages] == ["listener", "thinker", "talker"]
    assert [stage.index for stage in pipeline.stages] == [0, 1, 2]
    assert pipeline.outputs == {Modality.TEXT: 1, Modality.AUDIO: 2}


def test_edges_name_stages_by_index_with_their_defaults() -> None:
    listener, thinker, talker = voice().stages
    assert listener.reads_input
    assert listener.edges == ()
    assert thinker.reads_input
    assert thinker.edges == (Edge(stage=0, modality=Modality.TEXT, mode=EdgeMode.WHOLE),)
    assert not talker.reads_input
    assert talker.edges == (Edge(stage=1, modality=Modality.TEXT, mode=EdgeMode.STREAM),)


def test_what_the_file_says_is_in_the_model() -> None:
    pipeline = voice()
    listener, thinker, talker = pipeline.stages
    assert pipeline.aliases == ("gpt-voice",)
    assert pipeline.deadline_s == 12.0
    assert pipeline.limits == Limits(running_max=3)
    assert listener.when is Modality.AUDIO
    assert (listener.choices, thinker.choices) == (False, True)
    assert (listener.bridge, talker.bridge) == ("script", "clauses")
    assert thinker.bridge_options == {"system": "Be brief."}
    assert thinker.params.sampling.tokens_max == 5
    assert thinker.params.sampling.temperature == 1.0
    assert thinker.params.sampling.stop == ("a", "b")
    assert thinker.params.sampling.ignore_eos is True
    assert thinker.params.audio.voice == "joe"
    assert thinker.params.image.width == 64


def test_a_pool_keeps_what_its_engine_needs() -> None:
    text = "pools: {p: {engine: vllm, replicas: 2, model: m, options: {a: [1]}, env: {B: '2'}}}\n"
    mesh = parse_mesh(text + "pipelines: {a: {stages: {s: {pool: p}}, outputs: {text: s}}}")
    pool = mesh.pools["p"]
    assert (pool.name, pool.engine, pool.replicas, pool.model) == ("p", "vllm", 2, "m")
    assert pool.options == {"a": [1]}
    assert pool.env == {"B": "2"}
    assert mesh.pipelines["a"].stages[0].bridge == "chat"


@pytest.mark.parametrize(
    ("change", "inputs"),
    [
        (("", ""), {Modality.TEXT, Modality.AUDIO}),
        (("aliases: [gpt-voice]", "accepts: [audio]"), {Modality.AUDIO}),
    ],
)
def test_clients_may_send_what_is_read_and_asked_for_unless_the_file_says(
    change: tuple[str, str], inputs: set[Modality]
) -> None:
    assert voice(VOICE.replace(*change)).inputs == inputs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tokens_max: 5", "tokens_max: 6"),
        ("Be brief.", "Be long."),
        ("mode: stream", "mode: whole"),
        ("choices: true", "choices: false"),
        ("bridge: clauses", "bridge: script"),
        ("talker", "speaker"),
    ],
)
def test_the_revision_changes_with_what_shapes_a_request(old: str, new: str) -> None:
    assert voice().revision != voice(VOICE.replace(old, new)).revision


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("deadline_s: 12", "deadline_s: 13"),
        ("running_max: 3", "running_max: 4"),
        ("[gpt-voice]", "[other]"),
    ],
)
def test_the_revision_stays_when_only_limits_or_names_change(old: str, new: str) -> None:
    assert voice().revision == voice(VOICE.replace(old, new)).revision


@pytest.mark.parametrize(
    ("new", "same"),
    [
        ("words: {engine: synthetic, replicas: 7, env: {A: b}}", True),
        ("words: {engine: synthetic, model: other}", False),
        ("words: {engine: synthetic, options: {slots: 2}}", False),
    ],
)
def test_the_revision_follows_a_pool_s_engine_and_not_its_size(new: str, same: bool) -> None:
    changed = voice(pools=POOLS.replace("words: {engine: synthetic}", new))
    assert (changed.revision == voice().revision) is same


def test_the_revision_minds_no_pool_that_is_not_used() -> None:
    changed = POOLS.replace("{gives: image}", "{gives: video}")
    assert voice(pools=changed).revision == voice().revision


def comprehending(pipelines: str) -> list[str]:
    (pipeline,) = parse_mesh(mesh_text(pipelines)).pipelines.values()
    return [stage.name for stage in pipeline.stages if stage.comprehends]


def test_the_first_stage_that_reads_input_and_gives_text_comprehends() -> None:
    assert [stage.name for stage in voice().stages if stage.comprehends] == ["thinker"]
    chain = """
    m:
      stages:
        a: {pool: words}
        b: {pool: words, inputs: [input, a]}
      outputs: {text: b}
    """
    assert comprehending(chain) == ["a"]


def test_a_stage_that_may_be_left_out_or_gives_no_text_does_not_comprehend() -> None:
    heard = """
    m:
      accepts: [text, audio]
      stages:
        ear: {pool: words, when: input.audio}
        s: {pool: words, inputs: [input, ear]}
      outputs: {text: s}
    """
    assert comprehending(heard) == ["s"]
    silent = """
    m:
      stages: {s: {pool: sound}}
      outputs: {audio: s}
    """
    assert comprehending(silent) == []


def test_a_stage_that_hears_its_client_speak_comprehends_only_if_none_reads_it_whole() -> None:
    spoken = """
    m:
      stages:
        listener: {pool: words, inputs: [{from: input, mode: segment}]}
        thinker: {pool: words, inputs: [input, {from: listener, mode: segment}]}
      outputs: {text: thinker}
    """
    assert comprehending(spoken) == ["thinker"]
    assert comprehending(spoken.replace("[input, {", "[{")) == ["listener"]


def test_where_none_reads_input_the_first_that_gives_text_of_what_others_made_comprehends() -> None:
    chain = """
    m:
      stages:
        encoder: {pool: numbers}
        s: {pool: words, inputs: [{from: encoder, modality: tensor}]}
      outputs: {text: s}
    """
    assert comprehending(chain) == ["s"]


def test_the_file_may_say_which_stages_comprehend_and_which_do_not() -> None:
    marked = """
    m:
      stages:
        a: {pool: words}
        b: {pool: words, inputs: [a], comprehends: true}
      outputs: {text: b}
    """
    assert comprehending(marked) == ["b"]
    assert comprehending(
        marked.replace("a: {pool: words}", "a: {pool: words, comprehends: true}")
    ) == [
        "a",
        "b",
    ]
    refused = marked.replace("comprehends: true", "choices: true").replace(
        "a: {pool: words}", "a: {pool: words, comprehends: false}"
    )
    assert comprehending(refused) == ["b"]


PAIR = """
m:
  stages:
    first: {pool: numbers}
    then:
      pool: words
      inputs: [input, {from: first, modality: tensor}]
      prefill: first
  outputs: {text: then}
"""


def test_a_stage_that_prefills_comprehends_too_and_makes_one_token() -> None:
    assert comprehending(PAIR) == ["first", "then"]
    first, then = parse_mesh(mesh_text(PAIR)).pipelines["m"].stages
    wishes = Params(sampling=Sampling(tokens_max=50, tokens_min=9, stop=("x",), temperature=0.4))
    assert effective_params(first, wishes, {}).sampling == Sampling(tokens_max=1, temperature=0.4)
    assert effective_params(then, wishes, {}) == wishes


def test_constraints_are_values_or_bounds() -> None:
    mesh = parse_mesh(
        mesh_text(
            """
            m:
              stages:
                s:
                  pool: words
                  params: {sampling: {temperature: 0.5, tokens_max: 9}}
                  constraints:
                    sampling: {temperature: {min: 0.1, max: 1}, tokens_max: {max: 10}, stop: [x]}
                    audio: {voice: joe}
                  join_s: 3
              outputs: {text: s}
            """
        )
    )
    (stage,) = mesh.pipelines["m"].stages
    assert stage.constraints == {
        "sampling.temperature": Clamp(least=0.1, most=1),
        "sampling.tokens_max": Clamp(most=10),
        "sampling.stop": Fixed(("x",)),
        "audio.voice": Fixed("joe"),
    }
    assert stage.join_s == 3


def test_tenants_have_weights_and_pools_a_way_to_choose() -> None:
    text = mesh_text("m: {stages: {s: {pool: words}}, outputs: {text: s}}")
    mesh = parse_mesh(
        text.replace("{engine: theirs}", "{engine: theirs, replica_choice: round_robin}")
        + "tenants: {acme: {weight: 2.5}, Other.One: {}}\n"
    )
    assert {name: tenant.weight for name, tenant in mesh.tenants.items()} == {
        "acme": 2.5,
        "Other.One": 1.0,
    }
    assert mesh.pools["anything"].replica_choice is ReplicaChoice.ROUND_ROBIN
    assert mesh.pools["words"].replica_choice is ReplicaChoice.LEAST_LOADED


def test_a_stage_may_hear_its_client_as_it_speaks_or_by_segments() -> None:
    mesh = parse_mesh(
        mesh_text(
            """
            m:
              stages:
                a: {pool: words, inputs: [{from: input, mode: stream}]}
                b: {pool: words, inputs: [a, {from: input, mode: segment}]}
                c: {pool: words, inputs: [input, {from: b, mode: segment}]}
              outputs: {text: c}
            """
        )
    )
    a, b, c = mesh.pipelines["m"].stages
    assert (a.streamed, b.streamed, c.streamed) == (EdgeMode.STREAM, EdgeMode.SEGMENT, None)
    assert a.reads_input
    assert b.reads_input
    assert c.edges[0].mode is EdgeMode.SEGMENT
