from pathlib import Path

import pytest

from stagemesh.media import Modality
from stagemesh.pipeline import Mesh, MeshFileError, Pool, parse_mesh

SHIPPED = sorted(Path("pipelines").glob("*.yaml"))


def shipped(name: str) -> Mesh:
    return parse_mesh(Path("pipelines", name).read_text(), name)


def test_every_problem_of_a_file_is_told_at_once() -> None:
    text = """\
pools:
  thinker: {engine: vllm, replica: 1, env: {A: 1}}
  thinker: {engine: vllm}
  lost: {engine: piper}
pipelines:
  bad-shape:
    stages: {a: {pool: nowhere, whn: input.audio}}
    outputs: {smell: a}
  bad-graph:
    stages:
      a: {pool: nowhere, inputs: [b]}
      b: {pool: thinker, inputs: [a]}
    outputs: {text: b}
"""
    with pytest.raises(MeshFileError) as caught:
        parse_mesh(text, "my.yaml")
    assert str(caught.value).splitlines() == [
        "my.yaml: line 2: pools.thinker.env.A: must be a word or text, not 1; write it in quotes",
        "my.yaml: line 2: pools.thinker.replica: unknown key; did you mean replicas?",
        "my.yaml: line 3: pools.thinker: given twice, first on line 2; one has to go",
        "my.yaml: line 4: pools.lost: the key model is missing: piper has nothing to load",
        "my.yaml: line 7: pipelines.bad-shape.stages.a.whn: unknown key; did you mean when?",
        "my.yaml: line 8: pipelines.bad-shape.outputs.smell: unknown key; "
        "there is audio, image, text, video",
        "my.yaml: line 11: pipelines.bad-graph.stages.a.pool: no pool is called nowhere; "
        "there is lost, thinker",
        "my.yaml: line 12: pipelines.bad-graph.stages.b: reads its own result: b -> a -> b",
    ]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_mesh_is_right(path: Path) -> None:
    assert parse_mesh(path.read_text(), path.name).pipelines


def test_the_demo_has_a_pipeline_for_each_kind_of_job() -> None:
    mesh = shipped("demo.yaml")
    assert {name: (set(p.inputs), set(p.outputs)) for name, p in mesh.pipelines.items()} == {
        "smollm2": ({Modality.TEXT}, {Modality.TEXT}),
        "smollm2-voice": ({Modality.TEXT, Modality.AUDIO}, {Modality.TEXT, Modality.AUDIO}),
        "piper-joe": ({Modality.TEXT}, {Modality.AUDIO}),
        "whisper-tiny": ({Modality.AUDIO}, {Modality.TEXT}),
        "shapes": ({Modality.TEXT}, {Modality.IMAGE}),
    }


def test_the_light_demo_differs_in_the_engine_of_the_chat_model_only() -> None:
    full, light = shipped("demo.yaml"), shipped("demo-light.yaml")
    assert light.pools["thinker"] == Pool(
        name="thinker",
        engine="ctranslate2",
        model=full.pools["thinker"].model,
        env={"OMP_NUM_THREADS": "1"},
    )
    for mesh in (full, light):
        assert isinstance(mesh.pools, dict)
        del mesh.pools["thinker"]
    assert full.pools == light.pools
    for name, pipeline in full.pipelines.items():
        assert pipeline.stages == light.pipelines[name].stages
        assert pipeline.outputs == light.pipelines[name].outputs


def test_every_synthetic_pool_has_two_replicas() -> None:
    mesh = shipped("synthetic.yaml")
    assert set(mesh.pipelines) == {
        "echo",
        "film",
        "listen",
        "paint",
        "pair",
        "relay3",
        "talk",
        "turns",
    }
    assert {(pool.engine, pool.replicas) for pool in mesh.pools.values()} == {("synthetic", 2)}
    assert {stage.bridge for p in mesh.pipelines.values() for stage in p.stages} == {"script"}
