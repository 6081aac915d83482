"""Modalities, handles and bodies on the wire."""

import pytest

from stagemesh.api.types.v1 import media_pb2
from stagemesh.errors import MeshError
from stagemesh.media import Body, Handle, Modality
from stagemesh.outcome import ErrorCode
from stagemesh.wire import (
    body_from_proto,
    body_to_proto,
    handle_from_proto,
    handle_to_proto,
    modality_from_proto,
)

HANDLE = Handle(
    handle_id="h_1",
    request_id="req_1",
    holder_id="w0",
    incarnation=2**64 - 1,
    address="127.0.0.1:1",
    digest=bytes(range(16)),
)


def test_an_incarnation_of_64_bits_and_a_digest_stay_exact() -> None:
    message = media_pb2.Handle.FromString(handle_to_proto(HANDLE).SerializeToString())
    assert handle_from_proto(message) == HANDLE


def test_a_body_is_either_inline_or_by_handle() -> None:
    assert body_to_proto(Body(inline=b"x")).WhichOneof("bytes") == "inline"
    assert body_to_proto(Body(handle=HANDLE)).WhichOneof("bytes") == "handle"


def test_one_channel_needs_no_byte_and_none_means_one() -> None:
    assert body_to_proto(Body(channels=1)).channels == 0
    assert body_from_proto(media_pb2.Body()).channels == 1


def test_an_unknown_modality_is_the_sender_s_fault_and_names_the_field() -> None:
    with pytest.raises(MeshError) as caught:
        modality_from_proto(99, param="modalities[0]")
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == "modalities[0]"


@pytest.mark.parametrize("modality", list(Modality))
def test_modalities_have_the_same_numbers_as_the_proto(modality: Modality) -> None:
    assert media_pb2.Modality.Name(media_pb2.Modality.ValueType(modality)) == (
        f"MODALITY_{modality.name}"
    )
