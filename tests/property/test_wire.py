"""Every plain value comes back from the wire as it went, through real bytes."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import Message as ProtoMessage
from hypothesis import given
from hypothesis import strategies as st

from stagemesh import wire
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2, media_pb2, outcome_pb2, request_pb2
from stagemesh.wire import PublishedModelValue
from tests.helpers import wire_values


def _published_to_proto(model: PublishedModelValue) -> link_pb2.PublishedPipeline:
    return wire.published_to_proto(
        model,
        inputs=model.input_modalities,
        outputs=model.output_modalities,
        deadline_s=model.deadline_s,
    )


def _terminal_to_proto(terminal: Any) -> link_pb2.Terminal:
    return wire.terminal_to_proto(7, terminal)


Way = tuple[
    st.SearchStrategy[Any],
    type[ProtoMessage],
    Callable[[Any], ProtoMessage],
    Callable[[Any], Any],
]

WAYS: dict[str, Way] = {
    "usage": (
        wire_values.usages, outcome_pb2.Usage, wire.usage_to_proto, wire.usage_from_proto,
    ),
    "timings": (
        wire_values.timings, outcome_pb2.Timings, wire.timings_to_proto, wire.timings_from_proto,
    ),
    "error": (
        wire_values.errors, outcome_pb2.ErrorInfo, wire.error_to_proto, wire.error_from_proto,
    ),
    "end": (wire_values.ends, outcome_pb2.End, wire.end_to_proto, wire.end_from_proto),
    "terminal": (
        wire_values.terminals, link_pb2.Terminal, _terminal_to_proto, wire.terminal_from_proto,
    ),
    "request terminal": (
        wire_values.terminals,
        orchestrator_service_pb2.RequestTerminal,
        wire.request_terminal_to_proto,
        wire.request_terminal_from_proto,
    ),
    "handle": (
        wire_values.handles, media_pb2.Handle, wire.handle_to_proto, wire.handle_from_proto,
    ),
    "body": (wire_values.bodies, media_pb2.Body, wire.body_to_proto, wire.body_from_proto),
    "params": (
        wire_values.params, request_pb2.Params, wire.params_to_proto, wire.params_from_proto,
    ),
    "message": (
        wire_values.messages, request_pb2.Message, wire.message_to_proto, wire.message_from_proto,
    ),
    "request": (
        wire_values.requests, request_pb2.Request, wire.request_to_proto, wire.request_from_proto,
    ),
    "capabilities": (
        wire_values.capabilities,
        link_pb2.Capabilities,
        wire.capabilities_to_proto,
        wire.capabilities_from_proto,
    ),
    "published model": (
        wire_values.published,
        link_pb2.PublishedPipeline,
        _published_to_proto,
        wire.published_from_proto,
    ),
    "lane mark": (
        wire_values.lane_marks,
        link_pb2.LaneJournal,
        wire.lane_mark_to_proto,
        wire.lane_mark_from_proto,
    ),
    "options": (
        wire_values.json_options,
        struct_pb2.Struct,
        wire.options_to_proto,
        wire.options_from_proto,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WAYS))
@given(data=st.data())
def test_a_value_comes_back_as_it_went(name: str, data: st.DataObject) -> None:
    values, message_type, to_proto, from_proto = WAYS[name]
    value = data.draw(values)
    serialized = to_proto(value).SerializeToString()
    assert from_proto(message_type.FromString(serialized)) == value


@given(wire_values.modality_sets)
def test_a_set_of_modalities_comes_back_as_it_went(modalities: frozenset[Any]) -> None:
    numbers = wire.modalities_to_proto(modalities)
    assert numbers == sorted(numbers)
    assert wire.modalities_from_proto(numbers) == modalities
