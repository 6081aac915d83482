"""What a call's failure means, with and without our trailer."""

import grpc
import pytest
from grpc import aio

from stagemesh.outcome import ErrorCode, error_for
from stagemesh.rpc import ERROR_TRAILER, error_of
from stagemesh.wire import error_to_proto


def failure(
    code: grpc.StatusCode, details: str = "", trailers: aio.Metadata | None = None
) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), trailers or aio.Metadata(), details=details)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.name != "OK"])
def test_every_bare_status_means_something(code: grpc.StatusCode) -> None:
    info = error_of(failure(code, "words"))
    assert info.message == "words"
    assert info.reason


@pytest.mark.parametrize(
    ("status", "details", "code"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", ErrorCode.LINK_LOST),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", ErrorCode.LINK_LOST),
        (grpc.StatusCode.INTERNAL, "Exception deserializing response!", ErrorCode.PROTOCOL),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", ErrorCode.DEADLINE),
        (grpc.StatusCode.CANCELLED, "", ErrorCode.ABORTED),
        (grpc.StatusCode.UNKNOWN, "", ErrorCode.INTERNAL),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "Sent message larger than max (9 vs. 8)",
            ErrorCode.PAYLOAD_TOO_LARGE,
        ),
    ],
)
def test_a_bare_status_is_read_as_what_grpc_means_by_it(
    status: grpc.StatusCode, details: str, code: ErrorCode
) -> None:
    assert error_of(failure(status, details)).code is code


def test_the_trailer_says_more_than_the_status() -> None:
    info = error_for("replica_lost", stage="talker", attempt=3, retry_after_s=0.25)
    trailers = aio.Metadata((ERROR_TRAILER, error_to_proto(info).SerializeToString()))
    assert error_of(failure(grpc.StatusCode.UNAVAILABLE, "words", trailers)) == info


def test_a_damaged_trailer_leaves_the_status() -> None:
    trailers = aio.Metadata((ERROR_TRAILER, b"\xff\xff"))
    assert error_of(failure(grpc.StatusCode.UNAVAILABLE, "", trailers)).reason == "link_lost"


def test_long_details_are_cut() -> None:
    assert len(error_of(failure(grpc.StatusCode.UNKNOWN, "x" * 10_000)).message) == 512
