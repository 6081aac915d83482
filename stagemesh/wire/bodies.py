"""Modalities, handles and bodies: `media.proto`."""

from collections.abc import Iterable

from stagemesh.api.types.v1 import media_pb2
from stagemesh.errors import invalid
from stagemesh.media import Body, Handle, Modality

__all__ = [
    "body_from_proto",
    "body_to_proto",
    "handle_from_proto",
    "handle_to_proto",
    "modalities_from_proto",
    "modalities_to_proto",
    "modality_from_proto",
    "modality_to_proto",
]


def modality_to_proto(modality: Modality) -> media_pb2.Modality.ValueType:
    """Encode a modality."""
    return media_pb2.Modality.ValueType(modality)


def modality_from_proto(number: int, *, param: str = "") -> Modality:
    """Decode a modality.

    Raises:
        MeshError: With `INVALID_ARGUMENT` and `param`, if the number stands for none.
    """
    try:
        return Modality(number)
    except ValueError:
        raise invalid(f"{number} is not a modality", param=param) from None


def modalities_to_proto(modalities: Iterable[Modality]) -> list[media_pb2.Modality.ValueType]:
    """Encode a set of modalities, in the order of their numbers."""
    return [modality_to_proto(modality) for modality in sorted(modalities)]


def modalities_from_proto(numbers: Iterable[int], *, param: str = "") -> frozenset[Modality]:
    """Decode a set of modalities.

    Raises:
        MeshError: With `INVALID_ARGUMENT` and `param`, if a number stands for none.
    """
    return frozenset(modality_from_proto(number, param=param) for number in numbers)


def handle_to_proto(handle: Handle) -> media_pb2.Handle:
    """Encode a handle."""
    return media_pb2.Handle(
        handle_id=handle.handle_id,
        request_id=handle.request_id,
        holder_id=handle.holder_id,
        incarnation=handle.incarnation,
        address=handle.address,
        probe=handle.probe,
        size_bytes=handle.size_bytes,
        digest=handle.digest,
    )


def handle_from_proto(message: media_pb2.Handle) -> Handle:
    """Decode a handle."""
    return Handle(
        handle_id=message.handle_id,
        request_id=message.request_id,
        holder_id=message.holder_id,
        incarnation=message.incarnation,
        address=message.address,
        probe=message.probe,
        size_bytes=message.size_bytes,
        digest=message.digest,
    )


def body_to_proto(body: Body) -> media_pb2.Body:
    """Encode bytes or the handle that stands for them; one channel is left unsaid."""
    message = media_pb2.Body(
        media_type=body.media_type,
        sample_rate_hz=body.sample_rate_hz,
        channels=0 if body.channels == 1 else body.channels,
        shape=body.shape,
        dtype=body.dtype,
    )
    if body.handle:
        message.handle.CopyFrom(handle_to_proto(body.handle))
    else:
        message.inline = body.inline
    return message


def body_from_proto(message: media_pb2.Body) -> Body:
    """Decode bytes or the handle that stands for them."""
    by_handle = message.WhichOneof("bytes") == "handle"
    return Body(
        inline=message.inline,
        handle=handle_from_proto(message.handle) if by_handle else None,
        media_type=message.media_type,
        sample_rate_hz=message.sample_rate_hz,
        channels=message.channels or 1,
        shape=tuple(message.shape),
        dtype=message.dtype,
    )
