"""Hosts and origins."""

import pytest

from services.gateway.core.access import AccessRule
from stagemesh.errors import MeshError

RULE = AccessRule("10.1.2.3", ["Api.Example"], ["https://app.example/"])


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]", "[::1]:80", "10.1.2.3", "api.example"],
)  # fmt: skip
def test_our_own_names_and_those_that_were_allowed_may_be_called(host: str) -> None:
    RULE.check(host, "")


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "10.1.2.4", "[::1", "localhost@evil.example",
     "evil.example/localhost", "api.example."],
)  # fmt: skip
def test_any_other_name_is_refused(host: str) -> None:
    with pytest.raises(MeshError) as caught:
        RULE.check(host, "")
    assert caught.value.info.reason == "host_not_allowed"


@pytest.mark.parametrize(
    "origin", ["http://localhost:80", "https://localhost:80", "https://APP.example"]
)
def test_a_page_of_our_own_or_an_allowed_one_may_ask(origin: str) -> None:
    RULE.check("localhost:80", origin)


@pytest.mark.parametrize(
    "origin", ["null", "http://localhost", "http://localhost:81", "http://app.example", "x"]
)
def test_any_other_page_is_refused(origin: str) -> None:
    with pytest.raises(MeshError):
        RULE.check("localhost:80", origin)


def test_an_operator_may_allow_everybody() -> None:
    AccessRule("::1", ["*"], ["*"]).check("anything.example", "https://anything.example")
