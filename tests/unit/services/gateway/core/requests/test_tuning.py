import json
from typing import Any

import msgspec
import pytest

from services.gateway.core.requests.tuning import (
    StageParams,
    parse_stage_params,
    read_stage_params,
)
from stagemesh.errors import MeshError
from stagemesh.media import AudioParams, ImageParams, Params, Sampling
from stagemesh.outcome import ErrorCode


def stages(value: Any) -> StageParams:
    return msgspec.json.decode(json.dumps(value), type=StageParams)


def test_each_stage_is_tuned_by_the_names_of_a_mesh_file() -> None:
    told = read_stage_params(
        stages(
            {
                "thinker": {"sampling": {"temperature": 0.5, "stop": "x", "tokens_max": 3}},
                "talker": {"audio": {"voice": "joe"}, "sampling": {"stop": ["a", "b"]}},
                "painter": {"image": {"steps": 4}},
            }
        )
    )
    assert told == {
        "thinker": Params(sampling=Sampling(temperature=0.5, stop=("x",), tokens_max=3)),
        "talker": Params(audio=AudioParams(voice="joe"), sampling=Sampling(stop=("a", "b"))),
        "painter": Params(image=ImageParams(steps=4)),
    }


@pytest.mark.parametrize(
    "value", [{}, {"talker": {}}, {"talker": None}, {"talker": {"sampling": {}}}]
)
def test_nothing_said_of_a_stage_tunes_nothing(value: Any) -> None:
    """F3: an empty or short list of stage parameters is never an exception."""
    assert set(read_stage_params(stages(value)).values()) <= {Params()}
    assert read_stage_params(None) == {}


@pytest.mark.parametrize(
    ("value", "param", "reason"),
    [
        ({"a": {"samplin": {}}}, "stage_params.a.samplin", "unknown_parameter"),
        ({"a": {"sampling": {"heat": 1}}}, "stage_params.a.sampling.heat", "unknown_parameter"),
        (
            {"a": {"sampling": {"temperature": "hot"}}},
            "stage_params.a.sampling.temperature",
            "invalid_type",
        ),
        ({"a": {"sampling": {"top_k": -1}}}, "stage_params.a.sampling.top_k", "invalid_value"),
        ({"a": {"sampling": {"stop": [1]}}}, "stage_params.a.sampling.stop[0]", "invalid_type"),
        ({"a": []}, "stage_params.a", "invalid_type"),
        ({"a": 3}, "stage_params.a", "invalid_type"),
    ],
)
def test_what_is_wrong_is_named_with_its_stage(value: Any, param: str, reason: str) -> None:
    with pytest.raises(MeshError) as caught:
        read_stage_params(stages(value))
    info = caught.value.info
    assert (info.code, info.param, info.reason) == (ErrorCode.INVALID_ARGUMENT, param, reason)
    assert f"'{param}'" in info.message


def test_more_stages_than_any_pipeline_has_are_refused() -> None:
    with pytest.raises(MeshError, match="at most 64 stages"):
        read_stage_params(stages({f"s{number}": {} for number in range(65)}))


def test_a_form_has_the_field_as_json_in_a_text() -> None:
    assert parse_stage_params(None) == {}
    assert parse_stage_params("null") == {}
    told = parse_stage_params('{"listener": {"audio": {"language": "en"}}}')
    assert told == {"listener": Params(audio=AudioParams(language="en"))}


@pytest.mark.parametrize("text", ["", "x", "[]", "3", "{", "[" * 100_000])
def test_a_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(MeshError) as caught:
        parse_stage_params(text)
    assert caught.value.info.param == "stage_params"
