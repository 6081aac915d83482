"""Messages with every field set, by their descriptors: what a release puts on the wire.

`make baseline` writes them to `tests/contract/golden/` at a release. From then on those files prove
that new code reads what older code wrote.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct

from stagemesh.api.admin.v1 import admin_service_pb2
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.stage.v1 import payload_service_pb2, stage_service_pb2
from stagemesh.api.types.v1 import link_pb2

__all__ = ["GOLDEN", "ROOTS", "filled"]

GOLDEN: Final = Path(__file__).parents[1] / "contract" / "golden"

ROOTS: Final[tuple[type[Message], ...]] = (
    admin_service_pb2.ListReplicasResponse,
    link_pb2.LinkMessage,
    orchestrator_service_pb2.GenerateRequest,
    orchestrator_service_pb2.GenerateResponse,
    orchestrator_service_pb2.GetRequestResponse,
    orchestrator_service_pb2.ListModelsResponse,
    payload_service_pb2.FetchRequest,
    payload_service_pb2.FetchResponse,
    stage_service_pb2.DescribeResponse,
)
"""Together they have every field of the protos that is worth keeping."""

_Field = FieldDescriptor


def filled(kind: type[Message]) -> Message:
    """Make a message with every field set; a list has an entry for each choice of its kind."""
    message = kind()
    _fill(message, ())
    return message


def _fill(message: Message, above: tuple[str, ...]) -> None:
    if isinstance(message, Struct):
        message.update({"key": "value"})
        return
    for field in cast(Sequence[FieldDescriptor], message.DESCRIPTOR.fields):
        oneof = field.containing_oneof
        # One of several can be set: which one depends on the depth, so that each is somewhere.
        if oneof is None or field is oneof.fields[len(above) % len(oneof.fields)]:
            _set(message, field, above)


def _set(message: Message, field: FieldDescriptor, above: tuple[str, ...]) -> None:
    if field.type != _Field.TYPE_MESSAGE:
        value = _value(field)
        if field.is_repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)
        return
    kind = field.message_type
    assert kind is not None
    name = kind.full_name
    if name in above:
        return
    if not field.is_repeated:
        part = getattr(message, field.name)
        part.SetInParent()
        _fill(part, (*above, name))
        return
    for choice in _choices(kind):
        part = getattr(message, field.name).add()
        _fill(part, (*above, name))
        if choice is not None:
            _set(part, choice, (*above, name))


def _choices(descriptor: Descriptor) -> list[FieldDescriptor | None]:
    """Give the fields of which a message has one: each gets a copy of the message."""
    choices = [
        field for oneof in descriptor.oneofs if len(oneof.fields) > 1 for field in oneof.fields
    ]
    return list(choices) or [None]


def _value(field: FieldDescriptor) -> object:
    """Make a value that no default equals, and that tells its field from its neighbours."""
    match field.type:
        case _Field.TYPE_STRING:
            return field.name
        case _Field.TYPE_BYTES:
            return field.name.encode()
        case _Field.TYPE_BOOL:
            return True
        case _Field.TYPE_DOUBLE:
            return field.number + 0.5
        case _Field.TYPE_ENUM:
            assert field.enum_type is not None
            return field.enum_type.values[-1].number
        case _:
            return 1000 + field.number


def main() -> int:
    """Write the bytes and the JSON of every root."""
    GOLDEN.mkdir(exist_ok=True)
    for kind in ROOTS:
        message = filled(kind)
        name = kind.DESCRIPTOR.full_name
        (GOLDEN / f"{name}.binpb").write_bytes(message.SerializeToString(deterministic=True))
        text = json_format.MessageToJson(message, indent=1, preserving_proto_field_name=True)
        (GOLDEN / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
