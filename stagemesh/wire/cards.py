"""What processes tell of themselves on a link: capabilities, load, models and journals.

Services have classes of their own for these where their cores decide by them. What is encoded is
therefore typed by shape, and what is decoded is a plain value from here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from google.protobuf import struct_pb2

from stagemesh.api.types.v1 import control_pb2, link_pb2
from stagemesh.control import ControlKind, ControlSupport
from stagemesh.media import Modality
from stagemesh.outcome import End
from stagemesh.wire.bodies import modalities_from_proto, modalities_to_proto
from stagemesh.wire.outcomes import end_from_proto, end_to_proto

__all__ = [
    "CapabilitiesLike",
    "CapabilitiesValue",
    "LaneMark",
    "PublishedModelLike",
    "PublishedModelValue",
    "capabilities_from_proto",
    "capabilities_to_proto",
    "lane_mark_from_proto",
    "lane_mark_to_proto",
    "options_from_proto",
    "options_to_proto",
    "published_from_proto",
    "published_to_proto",
]


_KINDS: Final = frozenset(map(int, ControlKind))


class CapabilitiesLike(Protocol):
    """What an engine can do, as any class may say it."""

    @property
    def input_modalities(self) -> frozenset[Modality]:
        """What it takes."""

    @property
    def output_modalities(self) -> frozenset[Modality]:
        """What it gives."""

    @property
    def stream_input(self) -> bool:
        """Whether it takes input in pieces."""

    @property
    def stream_output(self) -> bool:
        """Whether it gives output in pieces."""

    @property
    def resume_contract(self) -> int:
        """A number of `ResumeContract` in `link.proto`."""

    @property
    def deterministic(self) -> bool:
        """Whether the same input gives the same output."""

    @property
    def slots(self) -> int:
        """How many attempts it runs at once."""

    @property
    def context_tokens_max(self) -> int:
        """Prompt plus output in tokens; 0 means no such limit."""

    @property
    def params(self) -> frozenset[str]:
        """Which fields of `Params` it minds; empty if it does not tell."""

    @property
    def control(self) -> ControlSupport:
        """Which control calls it carries out."""

    @property
    def interactions(self) -> bool:
        """Whether a running attempt can be given another prompt."""


class CapabilitiesValue(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do, as it was told."""

    input_modalities: frozenset[Modality] = frozenset()
    output_modalities: frozenset[Modality] = frozenset()
    stream_input: bool = False
    stream_output: bool = False
    resume_contract: int = 0
    deterministic: bool = False
    slots: int = 0
    context_tokens_max: int = 0
    params: frozenset[str] = frozenset()
    control: ControlSupport = ControlSupport()
    interactions: bool = False


class PublishedModelLike(Protocol):
    """A model name that an orchestrator answers to, as any class may say it."""

    @property
    def model(self) -> str:
        """The name."""

    @property
    def revision(self) -> str:
        """The hash of its pipeline."""

    @property
    def ready(self) -> bool:
        """Whether every pool that it needs has a ready replica."""


class PublishedModelValue(msgspec.Struct, frozen=True, kw_only=True):
    """A model name that an orchestrator answers to, as it was told."""

    model: str
    revision: str = ""
    ready: bool = False
    input_modalities: frozenset[Modality] = frozenset()
    output_modalities: frozenset[Modality] = frozenset()
    deadline_s: float = 0.0


class LaneMark(msgspec.Struct, frozen=True, kw_only=True):
    """How far one lane has come; `pos` is the next position."""

    lane: int
    pos: int
    token_ids: tuple[int, ...] = ()
    digest: bytes = b""
    end: End | None = None


def capabilities_to_proto(capabilities: CapabilitiesLike) -> link_pb2.Capabilities:
    """Encode what an engine can do."""
    return link_pb2.Capabilities(
        input_modalities=modalities_to_proto(capabilities.input_modalities),
        output_modalities=modalities_to_proto(capabilities.output_modalities),
        stream_input=capabilities.stream_input,
        stream_output=capabilities.stream_output,
        resume_contract=link_pb2.ResumeContract.ValueType(capabilities.resume_contract),
        deterministic=capabilities.deterministic,
        slots=capabilities.slots,
        context_tokens_max=capabilities.context_tokens_max,
        params=sorted(capabilities.params),
        controls=[
            control_pb2.ControlKind.ValueType(kind) for kind in sorted(capabilities.control.kinds)
        ],
        sleep_tags=sorted(capabilities.control.sleep_tags),
        collective_calls=sorted(capabilities.control.collective_calls),
        interactions=capabilities.interactions,
    )


def capabilities_from_proto(message: link_pb2.Capabilities) -> CapabilitiesValue:
    """Decode what an engine can do."""
    return CapabilitiesValue(
        input_modalities=modalities_from_proto(message.input_modalities),
        output_modalities=modalities_from_proto(message.output_modalities),
        stream_input=message.stream_input,
        stream_output=message.stream_output,
        resume_contract=message.resume_contract,
        deterministic=message.deterministic,
        slots=message.slots,
        context_tokens_max=message.context_tokens_max,
        params=frozenset(message.params),
        control=ControlSupport(
            # A kind that only a newer peer knows is left out.
            kinds=frozenset(map(ControlKind, _KINDS & set(map(int, message.controls)))),
            sleep_tags=frozenset(message.sleep_tags),
            collective_calls=frozenset(message.collective_calls),
        ),
        interactions=message.interactions,
    )


def published_to_proto(
    model: PublishedModelLike,
    *,
    inputs: frozenset[Modality],
    outputs: frozenset[Modality],
    deadline_s: float,
) -> link_pb2.PublishedPipeline:
    """Encode a model name with what its pipeline takes and gives, and the time that it allows."""
    return link_pb2.PublishedPipeline(
        model=model.model,
        revision=model.revision,
        ready=model.ready,
        input_modalities=modalities_to_proto(inputs),
        output_modalities=modalities_to_proto(outputs),
        deadline_s=deadline_s,
    )


def published_from_proto(message: link_pb2.PublishedPipeline) -> PublishedModelValue:
    """Decode a model name with what its pipeline takes and gives, and the time that it allows."""
    return PublishedModelValue(
        model=message.model,
        revision=message.revision,
        ready=message.ready,
        input_modalities=modalities_from_proto(message.input_modalities),
        output_modalities=modalities_from_proto(message.output_modalities),
        deadline_s=message.deadline_s,
    )


def lane_mark_to_proto(mark: LaneMark) -> link_pb2.LaneJournal:
    """Encode how far a lane has come."""
    return link_pb2.LaneJournal(
        lane=mark.lane,
        pos=mark.pos,
        token_ids=mark.token_ids,
        digest=mark.digest,
        end=end_to_proto(mark.end) if mark.end else None,
    )


def lane_mark_from_proto(message: link_pb2.LaneJournal) -> LaneMark:
    """Decode how far a lane has come."""
    return LaneMark(
        lane=message.lane,
        pos=message.pos,
        token_ids=tuple(message.token_ids),
        digest=message.digest,
        end=end_from_proto(message.end) if message.HasField("end") else None,
    )


def options_to_proto(options: Mapping[str, Any]) -> struct_pb2.Struct:
    """Encode options of a mesh file: JSON values, integers of at most 53 bits among them."""
    message = struct_pb2.Struct()
    message.update(dict(options))
    return message


def options_from_proto(message: struct_pb2.Struct) -> dict[str, Any]:
    """Decode options; a number without a fraction becomes an `int`, as it was written."""
    return {key: _option(value) for key, value in message.fields.items()}


def _option(value: struct_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return options_from_proto(value.struct_value)
        case "list_value":
            return _options(value.list_value.values)
        case _:
            return None


def _options(values: Sequence[struct_pb2.Value]) -> list[Any]:
    return [_option(value) for value in values]
