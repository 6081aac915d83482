"""Ends, errors and terminals on the wire."""

from enum import IntEnum
from typing import Any

import pytest

from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.errors import MeshError
from stagemesh.outcome import (
    End,
    ErrorCode,
    ErrorInfo,
    FinishReason,
    Outcome,
    Terminal,
    Usage,
    error_for,
)
from stagemesh.wire import (
    end_from_proto,
    end_to_proto,
    error_from_proto,
    error_to_proto,
    request_terminal_to_proto,
    terminal_from_proto,
    terminal_to_proto,
)


@pytest.mark.parametrize(
    ("plain", "wire", "prefix"),
    [
        (Outcome, outcome_pb2.Outcome, "OUTCOME"),
        (ErrorCode, outcome_pb2.ErrorCode, "ERROR_CODE"),
        (FinishReason, outcome_pb2.FinishReason, "FINISH_REASON"),
    ],
)
def test_plain_enums_and_proto_enums_are_the_same(
    plain: type[IntEnum], wire: Any, prefix: str
) -> None:
    named = {f"{prefix}_{member.name}": member.value for member in plain}
    assert named | {f"{prefix}_UNSPECIFIED": 0} == dict(wire.items())


def test_an_unset_retry_time_is_not_zero() -> None:
    assert not error_to_proto(error_for("queue_full")).HasField("retry_after_s")
    assert error_to_proto(error_for("queue_full", retry_after_s=0.0)).HasField("retry_after_s")


def test_a_code_from_a_newer_peer_is_internal_and_keeps_its_words() -> None:
    message = outcome_pb2.ErrorInfo(reason="new_reason", message="New.")
    message.MergeFromString(b"\x08\x63")  # code = 99
    assert error_from_proto(message) == ErrorInfo(
        code=ErrorCode.INTERNAL, reason="new_reason", message="New."
    )


def test_an_end_without_usage_costs_two_bytes() -> None:
    assert len(end_to_proto(End(finish_reason=FinishReason.STOP)).SerializeToString()) == 2


def test_usage_that_is_not_complete_stays_so() -> None:
    end = End(finish_reason=FinishReason.STOP, usage=Usage(complete=False))
    assert end_from_proto(end_to_proto(end)) == end


def test_an_end_without_a_reason_breaks_the_protocol() -> None:
    with pytest.raises(MeshError) as caught:
        end_from_proto(outcome_pb2.End())
    assert caught.value.info.code is ErrorCode.PROTOCOL


def test_a_terminal_without_an_outcome_breaks_the_protocol() -> None:
    with pytest.raises(MeshError) as caught:
        terminal_from_proto(link_pb2.Terminal(slot=1))
    assert caught.value.info.code is ErrorCode.PROTOCOL


def test_a_terminal_names_its_slot_and_no_error_is_no_error() -> None:
    message = terminal_to_proto(9, Terminal(outcome=Outcome.COMPLETED))
    assert message.slot == 9
    assert not message.HasField("error")
    assert terminal_from_proto(message).error is None


def test_a_grpc_client_always_finds_usage_and_timings() -> None:
    message = request_terminal_to_proto(Terminal(outcome=Outcome.COMPLETED))
    assert message.HasField("usage")
    assert message.usage.complete
    assert message.HasField("timings")
