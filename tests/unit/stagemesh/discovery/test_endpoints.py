"""How files and flags spell endpoints."""

import pytest

from stagemesh.discovery import Endpoint
from stagemesh.discovery.endpoints import parse_groups, parse_static
from stagemesh.errors import BadSettings


def test_a_file_has_groups_of_ids_with_addresses() -> None:
    text = b'{"groups": {"pool/a": [{"id": "a0", "address": "127.0.0.1:1"}], "pool/b": []}}'
    assert parse_groups(text) == {"pool/a": (Endpoint("a0", "127.0.0.1:1"),), "pool/b": ()}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"groups": []}',
        b'{"grups": {}}',
        b'{"groups": {"a": [{"id": "a0"}]}}',
        b'{"groups": {"a": [{"id": "a0", "address": "nowhere"}]}}',
        b'{"groups": {"a": [{"id": "", "address": "127.0.0.1:1"}]}}',
        b'{"groups": {"a": [{"id": "x", "address": "h:1"}, {"id": "x", "address": "h:2"}]}}',
        b'{"groups": {"a": [{"id": "\xff", "address": "h:1"}]}}',
    ],
)
def test_anything_else_is_garbage(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_groups(text)


def test_a_flag_has_the_same_in_one_line() -> None:
    assert parse_static("orchestrators=o0@h:1,o1@[::1]:2;pool/a=a0@h:3") == {
        "orchestrators": (Endpoint("o0", "h:1"), Endpoint("o1", "[::1]:2")),
        "pool/a": (Endpoint("a0", "h:3"),),
    }


@pytest.mark.parametrize("text", ["a", "a=", "=x@h:1", "a=x", "a=x@h", "a=x@h:1;a=y@h:2", "a=@h:1"])
def test_a_flag_that_says_less_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="discovery"):
        parse_static(text)
