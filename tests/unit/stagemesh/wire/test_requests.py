"""Requests on the wire."""

import pytest

from stagemesh.api.types.v1 import media_pb2, request_pb2
from stagemesh.errors import MeshError
from stagemesh.media import ImageParams, Params, Request, Sampling
from stagemesh.outcome import ErrorCode
from stagemesh.wire import params_from_proto, params_to_proto, request_from_proto, request_to_proto


def test_a_sampling_of_which_nothing_is_set_is_left_out() -> None:
    assert params_to_proto(Params()).ByteSize() == 0


def test_zero_is_a_wish_and_unset_is_none() -> None:
    params = Params(sampling=Sampling(temperature=0.0), image=ImageParams(negative_prompt=""))
    message = params_to_proto(params)
    assert message.sampling.HasField("temperature")
    assert not message.sampling.HasField("top_p")
    assert params_from_proto(message) == params


def test_every_field_of_the_proto_has_a_plain_twin() -> None:
    def names(message: type[request_pb2.Sampling | request_pb2.Params]) -> set[str]:
        return {field.name for field in message.DESCRIPTOR.fields}

    assert names(request_pb2.Sampling) == set(Sampling.__struct_fields__)
    assert names(request_pb2.Params) == set(Params.__struct_fields__)
    assert {field.name for field in request_pb2.Request.DESCRIPTOR.fields} == set(
        Request.__struct_fields__
    )


def test_an_empty_message_is_one_choice_of_the_default_tenant() -> None:
    request = request_from_proto(request_pb2.Request(model="echo"))
    assert (request.choices, request.tenant, request.seed_explicit) == (1, "default", False)


def test_a_seed_of_64_bits_stays_exact() -> None:
    request = Request(model="echo", messages=(), seed=2**64 - 1)
    assert request_to_proto(request).seed == 2**64 - 1


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (
            request_pb2.Request(messages=[request_pb2.Message(parts=[request_pb2.Part()])]),
            "messages[0].parts[0]",
        ),
        (
            request_pb2.Request(
                messages=[
                    request_pb2.Message(
                        parts=[request_pb2.Part(media=request_pb2.MediaPart(param="image_url"))]
                    )
                ]
            ),
            "image_url",
        ),
        (request_pb2.Request(modalities=[media_pb2.MODALITY_UNSPECIFIED]), "modalities[0]"),
    ],
)
def test_what_says_nothing_is_refused_by_the_client_s_name_for_it(
    message: request_pb2.Request, param: str
) -> None:
    with pytest.raises(MeshError) as caught:
        request_from_proto(message)
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == param


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (request_pb2.Request(messages=[request_pb2.Message()] * 4097), "messages"),
        (
            request_pb2.Request(
                messages=[request_pb2.Message(parts=[request_pb2.Part(text="")] * 8193)] * 2
            ),
            "messages",
        ),
        (request_pb2.Request(modalities=[media_pb2.MODALITY_TEXT] * 16), "modalities"),
    ],
    ids=["messages", "parts", "modalities"],
)
def test_what_consists_of_too_many_things_is_refused(
    message: request_pb2.Request, param: str
) -> None:
    with pytest.raises(MeshError) as caught:
        request_from_proto(message)
    assert (caught.value.info.param, caught.value.info.reason) == (param, "invalid_value")
