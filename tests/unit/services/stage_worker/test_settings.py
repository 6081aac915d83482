from pathlib import Path
from typing import Any

import pytest

from services.stage_worker.settings import Settings
from stagemesh.errors import BadSettings
from stagemesh.rpc import Tls
from stagemesh.settings import load

REQUIRED = {
    "mesh": "m.yaml", "pool": "pool", "replica_id": "replica-0", "listen": "127.0.0.1:20000",
}  # fmt: skip


def read(environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    return load(Settings, {}, environ or {}, "STAGEMESH", {**REQUIRED, **flags})


def test_flags_win_over_the_environment() -> None:
    assert read({"STAGEMESH_DRAIN_S": "3"}).drain_s == 3.0
    assert read({"STAGEMESH_DRAIN_S": "3"}, drain_s=4).drain_s == 4.0
    assert read().mesh == Path("m.yaml")


@pytest.mark.parametrize(
    "wrong",
    [
        {"pool": ""},
        {"replica_id": ""},
        {"drain_s": -1},
        {"payload_warm_bytes_max": -1},
        {"stall_s": 0},
        {"lease_s": 0},
        {"outbox_bytes_max": 0},
        {"advertise": "nowhere"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        read(**wrong)


def test_the_core_gets_its_part() -> None:
    limits = read(stall_s=5, outbox_bytes_max=6).limits
    assert (limits.stall_s, limits.outbox_bytes_max) == (5, 6)


def test_there_is_no_tls_without_a_certificate() -> None:
    assert read().server_tls is None
    assert read().channel_tls is None
    tls = Tls(ca_path="ca.pem")
    given = Settings(**{**REQUIRED, "mesh": Path("m"), "tls": tls})  # type: ignore[arg-type]
    assert given.server_tls is None
    assert given.channel_tls == tls
