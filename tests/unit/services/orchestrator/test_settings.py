"""What an operator may set, and what is refused."""

from typing import Any

import pytest

from services.orchestrator.settings import Settings
from stagemesh.errors import BadSettings
from stagemesh.settings import load

NEEDED = {"mesh": "mesh.yaml", "id": "o-0", "discovery": "file:/tmp/d.json"}


def settings(environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    return load(Settings, {}, environ or {}, "STAGEMESH", {**NEEDED, **flags})


def test_defaults_bind_loopback_only() -> None:
    made = settings()

    assert {address.rpartition(":")[0] for address in (made.grpc, made.link, made.admin)} == {
        "127.0.0.1"
    }
    assert not made.insecure


def test_a_flag_wins_over_the_environment() -> None:
    environ = {"STAGEMESH_DRAIN_S": "5", "STAGEMESH_ORCHESTRATORS": "3"}
    made = settings(environ, drain_s=7.5, orchestrators=None)

    assert (made.drain_s, made.orchestrators) == (7.5, 3)


@pytest.mark.parametrize(
    "flags",
    [
        {"id": ""},
        {"orchestrators": 0},
        {"drain_s": -1.0},
        {"slow_s": 0.0},
        {"stall_s": 0.0},
        {"lease_s": 0.0},
        {"payload_bytes_max": 0},
        {"link": "127.0.0.1:0"},
        {"link": "nowhere"},
        {"nonsense": 1},
    ],
)
def test_what_makes_no_sense_is_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        settings(**flags)


def test_workers_are_told_the_advertised_address() -> None:
    assert settings(link="127.0.0.1:7000").advertised == "127.0.0.1:7000"
    assert settings(link="127.0.0.1:0", advertise="10.0.0.7:7000").advertised == "10.0.0.7:7000"


def test_tls_is_used_on_each_side_that_has_the_files_for_it() -> None:
    plain = settings()
    authority = settings({"STAGEMESH_TLS_CA_PATH": "/ca.pem"})
    both = settings({"STAGEMESH_TLS_CERT_PATH": "/c.pem", "STAGEMESH_TLS_KEY_PATH": "/k.pem"})

    assert (plain.server_tls, plain.channel_tls) == (None, None)
    assert (authority.server_tls, authority.channel_tls) == (None, authority.tls)
    assert (both.server_tls, both.channel_tls) == (both.tls, both.tls)
