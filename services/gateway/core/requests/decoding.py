"""JSON bodies to typed values, and what is wrong with them in OpenAI's words.

The decoder checks types and refuses unknown fields; its messages name the place by a path
(`$.messages[0].content`), which becomes `param`. Numbers are only checked to fit the wire: what
range makes sense is decided at the orchestrator's door, for every kind of client.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn, TypeVar

import msgspec

from stagemesh.errors import invalid, unsupported

__all__ = [
    "NOTHING",
    "Body",
    "Natural",
    "Ranking",
    "Unserved",
    "convert_fields",
    "decode_base64",
    "decode_json",
    "refuse_unserved",
]

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
"""A number of things, as wide as the wire."""

Ranking = Annotated[int, msgspec.Meta(ge=-1, le=2**32 - 1)]
"""How many candidates are kept; -1 and 0 both mean all of them."""


Unserved = msgspec.Raw
"""A field that OpenAI knows and this build does not serve: skipped, not read, however large."""

NOTHING: Final = Unserved(b"null")


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A JSON object in which every field is known.

    What comes from JSON has no cycles, so the garbage collector need not look at it; with a million
    objects in one body it would take most of the time.
    """


_B = TypeVar("_B", bound=Body)

_NO_OP_BYTES_MAX: Final = 64

_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_NAMED: Final = re.compile(
    r"^Object (?P<kind>missing required|contains unknown) field `(?P<name>.*)`$"
)
_TYPE: Final = re.compile(r"^Expected `[^`]*`, got `[^`]*`$")


def decode_json(decoder: "msgspec.json.Decoder[_B]", raw: bytes | bytearray) -> _B:
    """Read a body.

    Raises:
        MeshError: If it is not JSON, or not of the decoder's type; `param` names the field.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        _refuse(str(error))
    except RecursionError:
        raise invalid("The body is nested too deeply.", reason="invalid_json") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise invalid(f"The body is not JSON: {error}.", reason="invalid_json") from None


def convert_fields(fields: Mapping[str, str], kind: type[_B]) -> _B:
    """Read the text fields of a form; numbers are written as text there.

    Raises:
        MeshError: If they are not of that kind; `param` names the field.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        _refuse(str(error))


def _refuse(problem: str) -> NoReturn:
    found = _PLACE.match(problem)
    what, path = (found["what"], found["path"] or "") if found else (problem, "")
    if named := _NAMED.match(what):
        param = f"{path}.{named['name']}" if path else named["name"]
        if named["kind"] == "contains unknown":
            raise invalid(f"Unknown parameter: '{param}'.", param=param, reason="unknown_parameter")
        raise invalid(
            f"Missing required parameter: '{param}'.",
            param=param,
            reason="missing_required_parameter",
        )
    reason = "invalid_type" if _TYPE.match(what) else "invalid_value"
    where = f"'{path}'" if path else "the body"
    raise invalid(f"Invalid {where}: {what[:1].lower()}{what[1:]}.", param=path, reason=reason)


def refuse_unserved(body: Body, no_ops: Mapping[str, tuple[Any, ...]], place: str = "") -> None:
    """Refuse fields that OpenAI knows and this build does not serve, unless they ask for nothing.

    `no_ops` maps each such field to the values that ask for nothing, all of them small; None always
    does.

    Raises:
        MeshError: With `unsupported_parameter`, for the first field that asks for something.
    """
    for name, harmless in no_ops.items():
        value = getattr(body, name)
        if value is NOTHING:
            continue
        if isinstance(value, Unserved):
            value = _read_small(value)
        if value is not None and not any(_same(value, no_op) for no_op in harmless):
            param = f"{place}.{name}" if place else name
            raise unsupported(
                f"'{param}' is not supported here.", param=param, reason="unsupported_parameter"
            )


def _read_small(raw: Unserved) -> object:
    """Read what may ask for nothing; give something unlike all JSON for what is too large to."""
    data = bytes(raw)
    try:
        return msgspec.json.decode(data) if len(data) <= _NO_OP_BYTES_MAX else ...
    except msgspec.DecodeError:  # Skipping looks less closely than reading.
        return ...


def _same(value: object, no_op: object) -> bool:
    return type(value) is type(no_op) and value == no_op


def decode_base64(text: str, param: str) -> bytes:
    """Read base64 of the standard alphabet, padded, without white space.

    Raises:
        MeshError: If it is anything else, or empty.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"'{param}' is not valid base64.", param=param) from None
    if not data:
        raise invalid(f"'{param}' is empty.", param=param)
    return data
