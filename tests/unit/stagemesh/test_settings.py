"""Settings from defaults, file, environment and flags; and the rule about addresses."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stagemesh.errors import BadSettings
from stagemesh.settings import is_loopback, load, refuse_exposed, split_address


@dataclass(frozen=True)
class Inner:
    """A table in a table."""

    cert: str = ""


@dataclass(frozen=True, kw_only=True)
class Outer:
    """One of everything."""

    name: str
    port: int = 1
    rate: float = 0.5
    on: bool = False
    folder: Path = Path("/")
    hosts: tuple[str, ...] = ()
    label: str | None = None
    tls: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.port < 1:
            raise ValueError("port must be at least 1")


def test_flags_win_over_the_environment_over_the_file_over_defaults() -> None:
    table = {"name": "file", "port": 2, "rate": 2}
    environ = {"STAGEMESH_PORT": "3", "STAGEMESH_RATE": "3"}
    settings = load(Outer, table, environ, "STAGEMESH", {"port": 4, "rate": None})
    assert (settings.name, settings.port, settings.rate, settings.on) == ("file", 4, 3.0, False)


def test_text_becomes_what_the_field_is() -> None:
    environ = {
        "P_NAME": "n",
        "P_ON": "true",
        "P_FOLDER": "/tmp/x",
        "P_HOSTS": "a, b,",
        "P_LABEL": "l",
        "P_TLS_CERT": "c.pem",
    }
    settings = load(Outer, {}, environ, "P")
    assert settings == Outer(
        name="n",
        on=True,
        folder=Path("/tmp/x"),
        hosts=("a", "b"),
        label="l",
        tls=Inner(cert="c.pem"),
    )


def test_a_nested_table_is_a_nested_value() -> None:
    assert load(Outer, {"name": "n", "tls": {"cert": "c"}}, {}, "P").tls.cert == "c"


@pytest.mark.parametrize(
    ("table", "environ", "named"),
    [
        ({"name": "n", "prot": 1}, {}, "prot"),
        ({"name": "n", "tls": {"crt": 1}}, {}, "crt"),
        ({"name": "n", "tls": 1}, {}, "P_TLS"),
        ({}, {}, "P_NAME"),
        ({"name": "n"}, {"P_PORT": "many"}, "P_PORT"),
        ({"name": "n"}, {"P_ON": "perhaps"}, "P_ON"),
        ({"name": "n", "port": 0}, {}, "port must be at least 1"),
        ({"name": "n", "folder": 3}, {}, "P_FOLDER"),
    ],
)
def test_what_is_wrong_is_named(
    table: dict[str, object], environ: dict[str, str], named: str
) -> None:
    with pytest.raises(BadSettings, match=named):
        load(Outer, table, environ, "P")


def test_a_variable_that_nobody_asked_for_is_not_an_error() -> None:
    environ = {"P_NAME": "n", "P_SERVICE_HOST": "10.0.0.1"}
    assert load(Outer, {}, environ, "P").name == "n"


def test_an_address_is_a_host_and_a_port() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address("localhost:0") == ("localhost", 0)


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:http", "host:65536"])
def test_anything_else_is_no_address(address: str) -> None:
    with pytest.raises(BadSettings, match="HOST:PORT"):
        split_address(address)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/tmp/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.org:1", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_only_loopback_goes_without_tls_unless_an_operator_says_so() -> None:
    refuse_exposed("127.0.0.1:1", secure=False, insecure=False)
    refuse_exposed("0.0.0.0:1", secure=True, insecure=False)
    refuse_exposed("0.0.0.0:1", secure=False, insecure=True)
    with pytest.raises(BadSettings, match="--insecure"):
        refuse_exposed("0.0.0.0:1", secure=False, insecure=False)
