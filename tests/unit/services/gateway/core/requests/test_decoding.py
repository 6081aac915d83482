"""JSON to typed values, and the words for what is wrong."""

from typing import Annotated, Any

import msgspec
import pytest

from services.gateway.core.requests.decoding import (
    NOTHING,
    Body,
    Natural,
    Unserved,
    convert_fields,
    decode_base64,
    decode_json,
    refuse_unserved,
)
from stagemesh.errors import MeshError
from stagemesh.outcome import REASONS


class Inner(Body, frozen=True):
    """A part of a body."""

    size: Natural


class Outer(Body, frozen=True):
    """A body."""

    items: Annotated[tuple[Inner, ...], msgspec.Meta(min_length=1)] = ()
    rate: float = 0.0
    extra: Any = None


class Skipping(Body, frozen=True):
    """A body with a field that is not served."""

    tools: Unserved = NOTHING


DECODER = msgspec.json.Decoder(Outer)
SKIPPING = msgspec.json.Decoder(Skipping)


@pytest.mark.parametrize(
    ("raw", "param", "reason", "words"),
    [
        (b'{"x": 1}', "x", "unknown_parameter", "Unknown parameter: 'x'."),
        (b'{"items": [{"size": 1, "x": 1}]}', "items[0].x", "unknown_parameter", "items[0].x"),
        (b'{"items": [{}]}', "items[0].size", "missing_required_parameter", "items[0].size"),
        (b'{"items": []}', "items", "invalid_value", "length >= 1"),
        (b'{"items": [{"size": "1"}]}', "items[0].size", "invalid_type", "got `str`"),
        (b'{"items": [{"size": -1}]}', "items[0].size", "invalid_value", ">= 0"),
        (b'{"rate": 1e999}', "rate", "invalid_value", "out of range"),
        (b"[]", "", "invalid_type", "the body"),
        (b"", "", "invalid_json", "truncated"),
        (b'{"extra": ' + b'{"a":' * 100_000, "", "invalid_json", "too deeply"),
    ],
)
def test_the_message_names_the_place_and_the_reason(
    raw: bytes, param: str, reason: str, words: str
) -> None:
    with pytest.raises(MeshError) as caught:
        decode_json(DECODER, raw)
    info = caught.value.info
    assert (info.param, info.reason) == (param, reason)
    assert words in info.message
    assert REASONS[info.reason].code is info.code


def test_numbers_of_a_form_are_written_as_text() -> None:
    assert convert_fields({"rate": "1.5"}, Outer).rate == 1.5
    with pytest.raises(MeshError) as caught:
        convert_fields({"rate": "much"}, Outer)
    assert caught.value.info.param == "rate"


@pytest.mark.parametrize(
    ("value", "refused"), [(None, False), (False, False), (0, True), ("", True)]
)
def test_only_the_very_values_that_ask_for_nothing_are_let_through(
    value: Any, refused: bool
) -> None:
    body = Outer(extra=value)
    if not refused:
        refuse_unserved(body, {"extra": (False,)})
        return
    with pytest.raises(MeshError) as caught:
        refuse_unserved(body, {"extra": (False,)}, "there")
    assert caught.value.info.param == "there.extra"


@pytest.mark.parametrize("raw", [b"{}", b'{"tools": null}', b'{"tools": [ ]}'])
def test_a_field_that_is_not_served_may_ask_for_nothing(raw: bytes) -> None:
    refuse_unserved(decode_json(SKIPPING, raw), {"tools": ([],)})


@pytest.mark.parametrize(
    "raw",
    [
        b'{"tools": {}}',
        b'{"tools": [1]}',
        b'{"tools": "\xff"}',
        b'{"tools": [%b1]}' % (b"[]," * 99),
    ],
)
def test_a_field_that_is_not_served_is_refused_unread(raw: bytes) -> None:
    with pytest.raises(MeshError) as caught:
        refuse_unserved(decode_json(SKIPPING, raw), {"tools": ([],)})
    assert (caught.value.info.param, caught.value.info.reason) in {
        ("tools", "unsupported_parameter"),
        ("", "invalid_json"),
    }


def test_base64_is_read_strictly() -> None:
    assert decode_base64("YWI=", "p") == b"ab"
    for text in ("YWI", "YW I=", "YWI=\n", "YW_=", "", "é"):
        with pytest.raises(MeshError) as caught:
            decode_base64(text, "p")
        assert caught.value.info.param == "p"
