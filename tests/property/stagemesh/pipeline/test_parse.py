import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagemesh.media import lane_of
from stagemesh.pipeline import MeshFileError, parse_mesh

WORDS = st.sampled_from(
    ["pools", "pipelines", "engine", "synthetic", "vllm", "stages", "s", "p", "pool", "inputs",
     "input", "from", "outputs", "text", "tensor", "when", "companions", "options", "gives", "-1"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)


@given(st.text() | st.text(alphabet="{}[]:,-&*!|>'\"# \n\tab01"))
@settings(max_examples=300)
def test_any_text_is_a_mesh_or_a_list_of_problems(text: str) -> None:
    with contextlib.suppress(MeshFileError):
        parse_mesh(text)


@given(st.dictionaries(st.sampled_from(["p", "q"]), VALUES), VALUES)
@settings(max_examples=300)
def test_any_values_are_a_mesh_or_a_list_of_problems(pools: Any, stage: Any) -> None:
    sound = {"engine": "synthetic"}
    stages = {"s": {"pool": "p"}, "t": stage}
    pipeline = {"stages": stages, "outputs": {"text": "s"}}
    text = json.dumps({"pools": {"p": sound, **pools}, "pipelines": {"m": pipeline, "n": stage}})
    with pytest.raises(MeshFileError) as caught:
        parse_mesh(text)
    assert all(problem.line == 1 and problem.text for problem in caught.value.problems)


@st.composite
def chains(draw: st.DrawFn) -> dict[str, Any]:
    """Right meshes: each stage reads the input or some earlier stages, in any order of writing."""
    count = draw(st.integers(min_value=1, max_value=8))
    stages: dict[str, Any] = {}
    for at in range(count):
        earlier = [f"s{before}" for before in range(at)]
        reads = draw(st.lists(st.sampled_from([*earlier, "input"]), unique=True, min_size=1))
        # The last reads all, so that an output needs each.
        stages[f"s{at}"] = {"pool": "p", "inputs": earlier or reads if at == count - 1 else reads}
    names = draw(st.permutations(list(stages)))
    return {
        "pools": {"p": {"engine": "synthetic"}},
        "pipelines": {
            "m": {
                "stages": {name: stages[name] for name in names},
                "outputs": {"text": f"s{count - 1}"},
            }
        },
    }


@given(chains())
def test_sources_stand_before_their_readers_and_lanes_fit(mesh: dict[str, Any]) -> None:
    pipeline = parse_mesh(json.dumps(mesh)).pipelines["m"]
    for at, stage in enumerate(pipeline.stages):
        assert stage.index == at
        assert all(edge.stage < at for edge in stage.edges)
        assert all(lane_of(edge.stage, 0, edge.modality) for edge in stage.edges) or not stage.edges
    assert parse_mesh(json.dumps(mesh)).pipelines["m"].revision == pipeline.revision
