"""The door."""

from typing import Any

import msgspec
import pytest

from services.orchestrator.core.door import Door, request_bytes
from services.orchestrator.core.settings import DoorLimits
from stagemesh.errors import MeshError
from stagemesh.media import (
    AudioParams,
    Body,
    ImageParams,
    MediaPart,
    Message,
    Modality,
    Params,
    Request,
    Sampling,
    TextPart,
)
from stagemesh.outcome import ErrorCode, ErrorInfo
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_stage import make_request

DOOR = Door(core_mesh(), DoorLimits())
NAN = float("nan")


def turned_away(request: Request, **context: int) -> ErrorInfo:
    with pytest.raises(MeshError) as caught:
        DOOR.enter(request, context_tokens=context)
    return caught.value.info


@pytest.mark.parametrize("model", ["echo", "parrot", "talk", "relay3", "paint", "twice"])
def test_a_plain_request_is_let_in(model: str) -> None:
    plan = DOOR.enter(make_request(model), context_tokens={})
    assert plan.groups
    assert plan.pipeline.name == ("echo" if model == "parrot" else model)


def test_a_model_that_is_not_there_is_not_found() -> None:
    error = turned_away(make_request("x" * 1000))
    assert (error.code, error.reason, error.param) == (
        ErrorCode.NOT_FOUND, "model_not_found", "model",
    )  # fmt: skip
    assert len(error.message) < 400


@pytest.mark.parametrize("field, value, param", [
    ("temperature", -0.1, "temperature"), ("temperature", 2.1, "temperature"),
    ("temperature", NAN, "temperature"), ("temperature", float("inf"), "temperature"),
    ("top_p", 0.0, "top_p"), ("top_p", 1.1, "top_p"), ("top_p", NAN, "top_p"),
    ("top_k", -1, "top_k"), ("min_p", -0.1, "min_p"), ("min_p", 1.1, "min_p"),
    ("frequency_penalty", -2.1, "frequency_penalty"),
    ("frequency_penalty", 2.1, "frequency_penalty"),
    ("presence_penalty", -2.1, "presence_penalty"), ("presence_penalty", 2.1, "presence_penalty"),
    ("repetition_penalty", 0.0, "repetition_penalty"),
    ("repetition_penalty", 2.1, "repetition_penalty"),
    ("tokens_max", 0, "max_completion_tokens"), ("tokens_min", -1, "min_tokens"),
    ("tokens_max", 2**32, "max_completion_tokens"),
    ("stop", ("a", "b", "c", "d", "e"), "stop"), ("stop", ("",), "stop"),
    ("stop", ("x" * 1025,), "stop"),
])  # fmt: skip
def test_sampling_out_of_range_is_named(field: str, value: Any, param: str) -> None:
    error = turned_away(make_request(params=Params(sampling=Sampling(**{field: value}))))
    assert (error.code, error.param) == (ErrorCode.INVALID_ARGUMENT, param)


@pytest.mark.parametrize("sampling", [
    Sampling(temperature=0.0), Sampling(temperature=2.0), Sampling(top_p=1.0), Sampling(top_k=0),
    Sampling(top_p=0.0001), Sampling(frequency_penalty=-2.0, presence_penalty=2.0),
    Sampling(repetition_penalty=2.0), Sampling(tokens_max=1), Sampling(tokens_min=0),
    Sampling(stop=("a", "b", "c", "d")), Sampling(tokens_min=5, tokens_max=5),
])  # fmt: skip
def test_sampling_at_its_bounds_is_let_in(sampling: Sampling) -> None:
    assert DOOR.enter(make_request(params=Params(sampling=sampling)), context_tokens={})


@pytest.mark.parametrize("image, param", [
    (ImageParams(width=15), "size"), (ImageParams(height=4097), "size"),
    (ImageParams(width=1_000_000, height=1), "size"), (ImageParams(width=0), "size"),
    (ImageParams(width=4096, height=4096), "size"), (ImageParams(steps=0), "steps"),
    (ImageParams(steps=201), "steps"), (ImageParams(guidance_scale=20.5), "guidance_scale"),
    (ImageParams(guidance_scale=-1.0), "guidance_scale"),
])  # fmt: skip
def test_image_params_out_of_range_are_named(image: ImageParams, param: str) -> None:
    error = turned_away(make_request("paint", params=Params(image=image)))
    assert (error.code, error.param) == (ErrorCode.INVALID_ARGUMENT, param)


@pytest.mark.parametrize("audio, param", [
    (AudioParams(speed=0.24), "speed"), (AudioParams(speed=4.1), "speed"),
    (AudioParams(voice="v" * 257), "voice"), (AudioParams(language="l" * 257), "language"),
])  # fmt: skip
def test_audio_params_out_of_range_are_named(audio: AudioParams, param: str) -> None:
    error = turned_away(make_request("talk", params=Params(audio=audio)))
    assert (error.code, error.param) == (ErrorCode.INVALID_ARGUMENT, param)


def test_an_image_at_its_bounds_is_let_in() -> None:
    image = ImageParams(width=4096, height=1024, steps=200, guidance_scale=20.0)
    assert DOOR.enter(make_request("paint", params=Params(image=image)), context_tokens={})


@pytest.mark.parametrize("choices", [0, -1, 17])
def test_choices_out_of_range_are_named(choices: int) -> None:
    assert turned_away(make_request(choices=choices)).param == "n"
    assert DOOR.enter(make_request(choices=16), context_tokens={}).choices == 16


@pytest.mark.parametrize("messages", [(), (Message(role="user", parts=()),)])
def test_messages_without_content_are_refused(messages: tuple[Message, ...]) -> None:
    error = turned_away(msgspec.structs.replace(make_request(), messages=messages))
    assert (error.code, error.param) == (ErrorCode.INVALID_ARGUMENT, "messages")


def test_an_unknown_role_is_named_by_its_place() -> None:
    good = Message(role="user", parts=(TextPart("hi"),))
    bad = Message(role="robot", parts=(TextPart("hi"),))
    request = msgspec.structs.replace(make_request(), messages=(good, bad))
    assert turned_away(request).param == "messages[1].role"


def test_too_much_text_is_refused() -> None:
    door = Door(core_mesh(), DoorLimits(text_chars_max=10, messages_max=2))
    with pytest.raises(MeshError) as caught:
        door.enter(make_request("echo", TextPart("x" * 6), TextPart("y" * 5)), context_tokens={})
    assert caught.value.info.code is ErrorCode.PAYLOAD_TOO_LARGE
    message = Message(role="user", parts=(TextPart("x"),))
    request = msgspec.structs.replace(make_request(), messages=(message,) * 3)
    with pytest.raises(MeshError) as caught:
        door.enter(request, context_tokens={})
    assert caught.value.info.param == "messages"
    image = Params(image=ImageParams(negative_prompt="n" * 11))
    with pytest.raises(MeshError) as caught:
        door.enter(make_request("paint", params=image), context_tokens={})
    assert caught.value.info.param == "negative_prompt"


def test_an_input_that_the_model_does_not_take_is_named_as_the_client_wrote_it() -> None:
    body = Body(inline=b"x")
    sound = MediaPart(modality=Modality.AUDIO, body=body, param="messages[0].content[1]")
    error = turned_away(make_request("echo", TextPart("hi"), sound))
    assert (error.code, error.reason) == (ErrorCode.UNSUPPORTED, "unsupported_modality")
    assert error.param == "messages[0].content[1]"
    unnamed = MediaPart(modality=Modality.IMAGE, body=body)
    assert turned_away(make_request("hear", unnamed)).param == "messages"
    assert DOOR.enter(make_request("hear", sound), context_tokens={})


def test_the_least_must_not_exceed_the_most_wherever_each_comes_from() -> None:
    both = Params(sampling=Sampling(tokens_min=9, tokens_max=8))
    assert turned_away(make_request(params=both)).param == "min_tokens"
    above_default = Params(sampling=Sampling(tokens_min=513))
    assert turned_away(make_request(params=above_default)).param == "min_tokens"
    assert DOOR.enter(make_request("talk", params=above_default), context_tokens={})


def test_more_tokens_than_the_engine_holds_are_refused() -> None:
    long = Params(sampling=Sampling(tokens_max=2049))
    error = turned_away(make_request(params=long), thinker=2048)
    assert (error.reason, error.param) == ("context_length_exceeded", "max_completion_tokens")
    assert DOOR.enter(make_request(params=long), context_tokens={"thinker": 0, "talker": 5})


@pytest.mark.parametrize("field", ["adapter", "label"])
def test_a_name_that_a_client_makes_up_is_bounded(field: str) -> None:
    error = turned_away(msgspec.structs.replace(make_request("echo"), **{field: "x" * 257}))
    assert (error.code, error.param) == (ErrorCode.INVALID_ARGUMENT, field)
    DOOR.enter(msgspec.structs.replace(make_request("echo"), label="x" * 256), context_tokens={})


def test_only_what_is_kept_here_counts_as_size() -> None:
    sound = MediaPart(modality=Modality.AUDIO, body=Body(inline=b"12345"))
    assert request_bytes(make_request("hear", TextPart("abc"), sound)) == 8
