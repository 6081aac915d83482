"""What clients may tune."""

from typing import Any

import msgspec
import pytest

from services.orchestrator.core.door import Door
from services.orchestrator.core.settings import DoorLimits
from stagemesh.errors import MeshError
from stagemesh.media import AudioParams, ImageParams, Params, Sampling
from stagemesh.outcome import ErrorCode, ErrorInfo
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_stage import make_request

DOOR = Door(core_mesh(), DoorLimits())
TAKES = {"thinker": frozenset({"sampling.temperature"}), "talker": frozenset[str]()}


def enter(
    model: str = "talk",
    *,
    stages: dict[str, Params] | None = None,
    params: Params | None = None,
    context: int = 0,
) -> None:
    request = make_request(model, params=params or Params())
    request = msgspec.structs.replace(request, stage_params=stages or {})
    DOOR.enter(request, context_tokens={"thinker": context, "talker": context}, takes=TAKES)


def turned_away(**asked: Any) -> ErrorInfo:
    with pytest.raises(MeshError) as caught:
        enter(**asked)
    return caught.value.info


def sampled(**values: Any) -> Params:
    return Params(sampling=Sampling(**values))


@pytest.mark.parametrize(
    "stages",
    [
        {},
        {"thinker": Params()},
        {"thinker": sampled(temperature=0.5)},
        {"talker": sampled(temperature=0.5, stop=("x",))},
    ],
)
def test_stages_are_tuned_by_name_and_an_empty_list_is_one_too(stages: dict[str, Params]) -> None:
    """F3: no list of parameters is too short."""
    enter(stages=stages)


def test_a_stage_that_is_not_there_is_named() -> None:
    error = turned_away(stages={"nobody" * 100: Params()})
    assert (error.code, error.reason) == (ErrorCode.INVALID_ARGUMENT, "unknown_parameter")
    assert error.param.startswith("stage_params.nobody")
    assert len(error.param) < 300


def test_a_field_that_the_engine_of_a_stage_does_not_mind_is_refused_by_name() -> None:
    error = turned_away(stages={"thinker": sampled(top_k=3)})
    assert (error.code, error.reason, error.param) == (
        ErrorCode.UNSUPPORTED, "unsupported_parameter", "stage_params.thinker.sampling.top_k",
    )  # fmt: skip


def test_an_engine_that_tells_nothing_is_asked_nothing() -> None:
    enter(stages={"talker": sampled(top_k=3)})


@pytest.mark.parametrize(
    ("params", "place"),
    [
        (sampled(temperature=2.1), "sampling.temperature"),
        (sampled(tokens_max=0), "sampling.tokens_max"),
        (sampled(stop=("",)), "sampling.stop"),
        (sampled(stop=("a",) * 5), "sampling.stop"),
        (Params(audio=AudioParams(speed=9)), "audio.speed"),
        (Params(audio=AudioParams(voice="x" * 1000)), "audio.voice"),
        (Params(image=ImageParams(width=3)), "image.width"),
        (Params(image=ImageParams(width=4000, height=4000)), "image.width"),
    ],
)
def test_what_is_out_of_range_is_named_with_its_stage(params: Params, place: str) -> None:
    error = turned_away(stages={"talker": params})
    assert (error.code, error.param) == (
        ErrorCode.INVALID_ARGUMENT,
        f"stage_params.talker.{place}",
    )


def test_a_negative_prompt_of_a_stage_is_bounded_too() -> None:
    text = "x" * (DoorLimits().text_chars_max + 1)
    error = turned_away(stages={"talker": Params(image=ImageParams(negative_prompt=text))})
    assert (error.code, error.param) == (
        ErrorCode.PAYLOAD_TOO_LARGE, "stage_params.talker.image.negative_prompt",
    )  # fmt: skip


def test_lengths_of_a_stage_must_agree_with_what_holds_there() -> None:
    stages = {"talker": sampled(tokens_min=9, tokens_max=5)}
    error = turned_away(stages=stages)
    assert error.param == "stage_params.talker.sampling.tokens_min"
    over_request = turned_away(
        params=sampled(tokens_min=9), stages={"thinker": Params()}, context=8
    )
    assert (over_request.reason, over_request.param) == (
        "context_length_exceeded", "min_tokens",
    )  # fmt: skip


def test_lengths_of_a_request_bind_the_stage_that_comprehends_and_no_other() -> None:
    """The talker's own least length contradicts nothing that a chat says of its answer."""
    enter(params=sampled(tokens_max=5), stages={"talker": sampled(tokens_min=9)})


def test_a_stage_is_not_asked_for_more_than_its_context_holds() -> None:
    error = turned_away(stages={"talker": sampled(tokens_max=100)}, context=50)
    assert (error.reason, error.param) == (
        "context_length_exceeded", "stage_params.talker.sampling.tokens_max",
    )  # fmt: skip
