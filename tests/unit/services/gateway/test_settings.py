"""What an operator may set."""

from typing import Any

import pytest

from services.gateway.settings import Settings
from stagemesh.errors import BadSettings
from stagemesh.settings import load

FLAGS: dict[str, Any] = {"id": "g0", "discovery": "static:orchestrators=o@127.0.0.1:1"}


def _load(flags: dict[str, Any] | None = None, **environ: str) -> Settings:
    return load(Settings, {}, environ, "STAGEMESH", FLAGS | (flags or {}))


def test_the_defaults_bind_loopback_and_allow_nobody_else() -> None:
    settings = _load()
    assert settings.http.startswith("127.0.0.1:")
    assert settings.payload.startswith("127.0.0.1:")
    assert (settings.allowed_hosts, settings.allowed_origins) == ((), ())


def test_lists_and_parts_come_from_the_environment_too() -> None:
    settings = _load(
        STAGEMESH_ALLOWED_HOSTS="a.example, b.example",
        STAGEMESH_LIMITS_BODY_BYTES_MAX="1000",
        STAGEMESH_CLIENT_DEADLINE_SLACK_S="0.5",
    )
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.limits.body_bytes_max == 1000
    assert settings.client.deadline_slack_s == 0.5


@pytest.mark.parametrize(
    "flags",
    [
        {"http": "0.0.0.0:8000"},
        {"http": "localhost"},
        {"payload": "127.0.0.1:0"},
        {"id": ""},
        {"drain_s": -1},
        {"window_units": 0},
        {"slow_s": 0},
        {"fetch_s": "soon"},
    ],
)
def test_what_cannot_work_is_refused_before_it_starts(flags: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        _load(flags)


def test_an_open_address_needs_a_word() -> None:
    assert _load({"http": "0.0.0.0:8000", "insecure": True}).http == "0.0.0.0:8000"
