"""The registry of reason words."""

import re

import pytest

from stagemesh.outcome import REASONS, ErrorCode, default_reason, error_for, is_retryable


@pytest.mark.parametrize("word", sorted(REASONS))
def test_a_word_is_a_plain_name_with_one_sentence(word: str) -> None:
    assert re.fullmatch(r"[a-z][a-z_]*[a-z]", word)
    assert re.fullmatch(r"[A-Z][^.]*\.", REASONS[word].sentence)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_a_word_of_its_own(code: ErrorCode) -> None:
    assert REASONS[default_reason(code)].code is code


def test_the_words_that_clients_rely_on_are_there() -> None:
    expected = {
        "model_not_found": ErrorCode.NOT_FOUND,
        "context_length_exceeded": ErrorCode.INVALID_ARGUMENT,
        "rate_limit_exceeded": ErrorCode.RATE_LIMITED,
        "queue_full": ErrorCode.OVERLOADED,
        "invalid_value": ErrorCode.INVALID_ARGUMENT,
        "missing_required_parameter": ErrorCode.INVALID_ARGUMENT,
        "unsupported_value": ErrorCode.UNSUPPORTED,
        "unknown_parameter": ErrorCode.INVALID_ARGUMENT,
        "body_too_large": ErrorCode.PAYLOAD_TOO_LARGE,
        "replica_lost": ErrorCode.REPLICA_LOST,
        "handle_lost": ErrorCode.REPLICA_LOST,
        "link_lost": ErrorCode.LINK_LOST,
        "deadline_exceeded": ErrorCode.DEADLINE,
        "slow_consumer": ErrorCode.SLOW_CONSUMER,
    }
    assert {word: REASONS[word].code for word in expected} == expected


def test_an_error_takes_from_the_registry_what_nobody_said() -> None:
    info = error_for("queue_full")
    assert (info.code, info.retryable) == (ErrorCode.OVERLOADED, True)
    assert info.message == REASONS["queue_full"].sentence


def test_an_error_keeps_what_somebody_said() -> None:
    info = error_for("replica_lost", "gone", stage="talker", retryable=False, param="x")
    assert (info.message, info.stage, info.retryable, info.param) == ("gone", "talker", False, "x")


def test_an_unregistered_word_is_refused() -> None:
    with pytest.raises(KeyError):
        error_for("no_such_word")


def test_what_the_client_did_wrong_does_not_get_better_by_itself() -> None:
    assert not is_retryable(ErrorCode.INVALID_ARGUMENT)
    assert not is_retryable(ErrorCode.CONFLICT)
    assert is_retryable(ErrorCode.REPLICA_LOST)
