"""A client's request, made ready for the mesh."""

import pytest

from services.orchestrator.servicer.inputs import adopt
from stagemesh.api.types.v1 import media_pb2, request_pb2
from stagemesh.errors import MeshError
from stagemesh.media import INLINE_BYTES_MAX, Handle
from stagemesh.outcome import ErrorCode


class Shelf:
    """A store that keeps bytes in a list."""

    def __init__(self) -> None:
        self.held: list[tuple[bytes, str]] = []

    def put(self, data: bytes, request_id: str) -> Handle:
        """Keep bytes."""
        self.held.append((data, request_id))
        return Handle(
            handle_id=f"h_{len(self.held)}",
            request_id=request_id,
            holder_id="o-0",
            incarnation=1,
            address="127.0.0.1:1",
            size_bytes=len(data),
        )


def with_audio(data: bytes) -> request_pb2.Request:
    body = media_pb2.Body(inline=data, media_type="audio/wav")
    media = request_pb2.MediaPart(modality=media_pb2.MODALITY_AUDIO, body=body)
    parts = [request_pb2.Part(text="listen"), request_pb2.Part(media=media)]
    return request_pb2.Request(
        model="echo", messages=[request_pb2.Message(role="user", parts=parts)]
    )


def test_large_bytes_are_put_away_and_travel_as_a_handle() -> None:
    shelf, data = Shelf(), bytes(INLINE_BYTES_MAX + 1)
    request = with_audio(data)
    adopt(request, "req_1", shelf)

    body = request.messages[0].parts[1].media.body
    assert shelf.held == [(data, "req_1")]
    assert (body.handle.handle_id, body.handle.size_bytes) == ("h_1", len(data))
    assert body.media_type == "audio/wav"
    assert request.messages[0].parts[0].text == "listen"


def test_small_bytes_stay_where_they_are() -> None:
    shelf = Shelf()
    request = with_audio(bytes(INLINE_BYTES_MAX))
    adopt(request, "req_1", shelf)

    assert shelf.held == []
    assert len(request.messages[0].parts[1].media.body.inline) == INLINE_BYTES_MAX


def test_a_handle_from_a_client_is_refused_before_anything_is_put_away() -> None:
    shelf = Shelf()
    request = with_audio(bytes(INLINE_BYTES_MAX + 1))
    second = request.messages[0].parts.add().media
    second.body.handle.handle_id = "h_stolen"
    with pytest.raises(MeshError) as caught:
        adopt(request, "req_1", shelf)

    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == "messages[0].parts[2]"
    assert shelf.held == []


def test_a_tenant_cannot_be_claimed() -> None:
    request = request_pb2.Request(model="echo", tenant="somebody")
    adopt(request, "req_1", Shelf())

    assert request.tenant == "default"


def test_a_seed_is_drawn_only_where_the_client_gave_none() -> None:
    given = [request_pb2.Request(seed=7), request_pb2.Request(seed=0, seed_explicit=True)]
    drawn = [request_pb2.Request() for _ in range(8)]
    for request in (*given, *drawn):
        adopt(request, "req_1", Shelf())

    assert [(request.seed, request.seed_explicit) for request in given] == [(7, True), (0, True)]
    assert len({request.seed for request in drawn}) > 1
    assert not any(request.seed_explicit for request in drawn)


def test_nobody_on_this_port_chooses_a_tenant_or_goes_before_others() -> None:
    request = with_audio(b"x")
    request.tenant, request.priority = "somebody else", 99
    adopt(request, "req_1", Shelf())
    assert (request.tenant, request.priority) == ("default", 0)
