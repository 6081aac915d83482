from collections.abc import Callable

import pytest

from stagemesh.errors import BadSettings, MeshError, invalid, unsupported
from stagemesh.outcome import REASONS, ErrorCode, error_for


def test_a_mesh_error_carries_its_cause_and_reads_as_its_message() -> None:
    info = error_for("queue_full", "Too many wait.", stage="thinker")
    with pytest.raises(MeshError, match=r"^Too many wait\.$") as raised:
        raise MeshError(info)
    assert raised.value.info is info


def test_a_wrong_field_is_the_clients_mistake_and_is_named() -> None:
    info = invalid("Must be positive.", param="max_tokens").info
    assert (info.code, info.reason, info.param) == (
        ErrorCode.INVALID_ARGUMENT, "invalid_value", "max_tokens",
    )  # fmt: skip
    assert not info.retryable


def test_what_cannot_be_done_here_is_told_apart_from_what_is_wrong() -> None:
    info = unsupported("This model gives no images.", param="modalities").info
    assert (info.code, info.reason) == (ErrorCode.UNSUPPORTED, "unsupported_value")


@pytest.mark.parametrize("make", [invalid, unsupported])
def test_the_default_reasons_are_registered_under_their_codes(
    make: Callable[[str], MeshError],
) -> None:
    info = make("").info
    assert REASONS[info.reason].code is info.code


def test_a_bad_setting_is_a_value_error_for_those_who_build_settings() -> None:
    assert issubclass(BadSettings, ValueError)
    assert not issubclass(MeshError, ValueError)
