"""Image bodies."""

import json
from typing import Any

import pytest

from services.gateway.core.requests import IMAGE_UNSERVED, Origin, read_image
from stagemesh.errors import MeshError
from stagemesh.media import ImageParams, Modality, Request, TextPart


def _read(**body: Any) -> Request:
    full = {"model": "m", "prompt": "a red circle", **body}
    return read_image(json.dumps(full).encode(), Origin(seed=3)).request


def test_a_prompt_becomes_a_message_and_defaults_are_the_pipelines() -> None:
    request = _read()
    assert request.messages[0].parts == (TextPart("a red circle"),)
    assert request.modalities == (Modality.IMAGE,)
    assert request.params.image == ImageParams()
    assert (request.choices, request.seed, request.seed_explicit) == (1, 3, False)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [("auto", (None, None)), ("64x48", (64, 48)), ("0x0", (0, 0)), (None, (None, None))],
)
def test_a_size_is_read(size: Any, wanted: tuple[int | None, int | None]) -> None:
    image = _read(size=size).params.image
    assert (image.width, image.height) == wanted


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        ({"prompt": ""}, "prompt", "invalid_value"),
        ({"prompt": None}, "prompt", "invalid_type"),
        ({"model": ""}, "model", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": "two"}, "n", "invalid_type"),
        ({"size": "64"}, "size", "invalid_value"),
        ({"size": "-1x5"}, "size", "invalid_value"),
        ({"size": "٣x٣"}, "size", "invalid_value"),
        ({"size": "9999999999x1"}, "size", "invalid_value"),
        ({"size": 64}, "size", "invalid_type"),
        ({"response_format": "url"}, "response_format", "unsupported_value"),
        ({"num_inference_steps": -1}, "num_inference_steps", "invalid_value"),
        ({"guidance_scale": "much"}, "guidance_scale", "invalid_type"),
        ({"quality": "hd"}, "quality", "unsupported_parameter"),
        ({"stream": True}, "stream", "unsupported_parameter"),
        ({"strength": 1}, "strength", "unknown_parameter"),
    ],
)
def test_a_field_that_is_wrong_is_named(body: dict[str, Any], param: str, reason: str) -> None:
    with pytest.raises(MeshError) as caught:
        _read(**body)
    assert (caught.value.info.param, caught.value.info.reason) == (param, reason)


@pytest.mark.parametrize(
    ("name", "value"), [(name, no_op) for name, many in IMAGE_UNSERVED.items() for no_op in many]
)
def test_a_value_that_asks_for_nothing_is_taken(name: str, value: Any) -> None:
    assert _read(**{name: value}) == _read()
