"""The table of outcomes, over the full product of outcomes and codes."""

from itertools import product

import grpc
import pytest

from stagemesh.outcome import (
    ErrorCode,
    ErrorInfo,
    Outcome,
    error_for,
    is_client_error,
    outcome_of,
    retry_headers,
    status_of,
)

CODES = [None, *ErrorCode]
PRODUCT = list(product(Outcome, CODES))
ROOM = (
    ErrorCode.OVERLOADED,
    ErrorCode.PAUSED,
    ErrorCode.ASLEEP,
    ErrorCode.DRAINING,
    ErrorCode.NO_REPLICA,
)

# How proxies that count gRPC statuses as HTTP statuses read them (Envoy's table).
HTTP_OF_GRPC = {
    "OK": 200,
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
OPENAI_TYPES = {
    "authentication_error",
    "cancelled_error",
    "conflict_error",
    "invalid_request_error",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "server_error",
    "timeout_error",
}


@pytest.mark.parametrize(("outcome", "code"), PRODUCT)
def test_every_end_has_a_status_that_all_three_worlds_know(
    outcome: Outcome, code: ErrorCode | None
) -> None:
    status = status_of(outcome, code)
    assert status.grpc in grpc.StatusCode.__members__
    assert 200 <= status.http < 600
    assert (status.openai_type == "") is (status.http == 200)
    assert status.openai_type in OPENAI_TYPES | {""}


@pytest.mark.parametrize(("outcome", "code"), PRODUCT)
def test_only_a_completed_request_is_a_success(outcome: Outcome, code: ErrorCode | None) -> None:
    status = status_of(outcome, code)
    completed = outcome is Outcome.COMPLETED
    assert (status.http == 200) is completed
    assert (status.grpc == "OK") is completed


@pytest.mark.parametrize(("outcome", "code"), PRODUCT)
def test_a_client_error_is_never_a_5xx_for_anybody(
    outcome: Outcome, code: ErrorCode | None
) -> None:
    if code is not None and is_client_error(code):
        status = status_of(outcome, code)
        assert status.http < 500
        assert HTTP_OF_GRPC[status.grpc] < 500


@pytest.mark.parametrize(("outcome", "code"), PRODUCT)
def test_what_was_not_started_for_lack_of_room_is_429_and_says_so(
    outcome: Outcome, code: ErrorCode | None
) -> None:
    status = status_of(outcome, code)
    if outcome is Outcome.REJECTED and code in {*ROOM, ErrorCode.STALLED}:
        assert (status.http, status.grpc, status.not_admitted) == (429, "RESOURCE_EXHAUSTED", True)
    else:
        no_orchestrator = outcome is Outcome.REJECTED and code is ErrorCode.LINK_LOST
        assert status.not_admitted is no_orchestrator


@pytest.mark.parametrize("code", ROOM)
def test_the_same_codes_after_a_start_are_502(code: ErrorCode) -> None:
    assert status_of(Outcome.FAILED, code).http == 502


@pytest.mark.parametrize(("outcome", "code"), PRODUCT)
def test_503_is_for_a_gateway_without_an_orchestrator_alone(
    outcome: Outcome, code: ErrorCode | None
) -> None:
    is_503 = status_of(outcome, code).http == 503
    assert is_503 is (outcome is Outcome.REJECTED and code is ErrorCode.LINK_LOST)


@pytest.mark.parametrize(("outcome", "code"), PRODUCT)
def test_502_is_for_what_started_and_broke(outcome: Outcome, code: ErrorCode | None) -> None:
    if status_of(outcome, code).http == 502:
        assert outcome is Outcome.FAILED


@pytest.mark.parametrize(("outcome", "code"), PRODUCT)
def test_429_and_503_always_come_with_retry_after(outcome: Outcome, code: ErrorCode | None) -> None:
    status = status_of(outcome, code)
    headers = retry_headers(status, None)
    assert ("retry-after" in headers) is (status.http in {429, 503})
    assert ("x-stagemesh-not-admitted" in headers) is status.not_admitted


def test_retry_after_is_whole_seconds_rounded_up_and_at_least_one() -> None:
    status = status_of(Outcome.REJECTED, ErrorCode.OVERLOADED)
    asked = [0.0, 0.2, 1.0, 2.5]
    told = [
        retry_headers(status, error_for("queue_full", retry_after_s=after_s))["retry-after"]
        for after_s in asked
    ]
    assert told == ["1", "1", "1", "3"]


def test_a_cause_that_knows_when_says_so_under_any_status() -> None:
    info = error_for("replica_lost", retry_after_s=4)
    assert retry_headers(status_of(Outcome.FAILED, info.code), info) == {"retry-after": "4"}


def test_a_conflict_tells_clients_not_to_retry() -> None:
    status = status_of(Outcome.FAILED, ErrorCode.CONFLICT)
    assert status.http == 409
    assert retry_headers(status, None) == {"x-should-retry": "false"}


@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_call_that_failed_at_once_never_looks_completed(code: ErrorCode) -> None:
    outcome = outcome_of(code)
    assert outcome is not Outcome.COMPLETED
    assert status_of(outcome, code).http >= 400


def test_well_known_ends_look_as_openai_shows_them() -> None:
    def shown(reason: str) -> tuple[int, str]:
        info: ErrorInfo = error_for(reason)
        status = status_of(outcome_of(info.code), info.code)
        return status.http, status.openai_type

    assert shown("model_not_found") == (404, "invalid_request_error")
    assert shown("context_length_exceeded") == (400, "invalid_request_error")
    assert shown("invalid_api_key") == (401, "authentication_error")
    assert shown("rate_limit_exceeded") == (429, "rate_limit_error")
    assert shown("deadline_exceeded") == (504, "timeout_error")
    assert shown("internal_error") == (500, "server_error")
