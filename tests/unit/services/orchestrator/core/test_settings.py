"""The core's settings."""

import msgspec
import pytest

from services.orchestrator.core.settings import CoreSettings, DoorLimits


def test_the_defaults_are_those_of_the_protocol() -> None:
    settings = CoreSettings()
    assert settings.journal_bytes_max == 4 * 1024 * 1024
    assert (settings.abort_ack_s, settings.usage_wait_s, settings.redrive_s) == (1.0, 1.0, 10.0)
    assert (settings.slow_s, settings.stall_s, settings.tombstone_s) == (30.0, 30.0, 30.0)
    assert settings.tombstones_max == 100_000
    assert settings.door == DoorLimits()


@pytest.mark.parametrize("name", ["orchestrators", "stall_s", "window_units", "recent_max"])
def test_a_number_that_is_not_above_zero_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above zero, not 0"):
        msgspec.structs.replace(CoreSettings(), **{name: 0})
    with pytest.raises(ValueError, match=name):
        msgspec.structs.replace(CoreSettings(), **{name: float("nan")})
