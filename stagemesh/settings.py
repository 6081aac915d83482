"""Typed settings: defaults < file < environment < flags; and the rule about addresses.

A settings class is a frozen dataclass. Each field is a key of the file's table; `PREFIX_FIELD` in
the environment wins over the file, a flag over both. Nested dataclasses are nested tables.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, get_origin, get_type_hints

import msgspec

from stagemesh.errors import BadSettings

__all__ = ["is_loopback", "load", "refuse_exposed", "split_address"]

_T = TypeVar("_T")
_NO_FLAGS: Final[Mapping[str, Any]] = {}


def load(
    cls: type[_T],
    table: Mapping[str, Any],
    environ: Mapping[str, str],
    prefix: str,
    flags: Mapping[str, Any] = _NO_FLAGS,
) -> _T:
    """Build `cls` from a file's table, the environment and flags.

    A flag that is None was not given. A variable that no field claims is ignored, since Kubernetes
    adds variables of its own.

    Raises:
        BadSettings: With the name of the key that is unknown, missing, or of the wrong type.
    """
    hints = get_type_hints(cls)
    if unknown := sorted((set(table) | set(flags)) - set(hints)):
        raise BadSettings(f"{prefix}: unknown settings: {', '.join(unknown)}")
    values: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]  # The caller's promise: a dataclass.
        kind, variable = hints[field.name], f"{prefix}_{field.name}".upper()
        if is_dataclass(kind):
            part = _table(variable, table.get(field.name, {}))
            part_flags = _table(variable, flags.get(field.name) or {})
            values[field.name] = load(kind, part, environ, variable, part_flags)  # type: ignore[arg-type]
            continue
        found, value = _lookup(field, variable, (table, environ, flags))
        if found:
            values[field.name] = _convert(variable, value, kind)
    try:
        return cls(**values)
    except BadSettings:
        raise
    except ValueError as error:
        raise BadSettings(f"{prefix}: {error}") from error


def split_address(address: str) -> tuple[str, int]:
    """Split `HOST:PORT`; an IPv6 host stands in brackets.

    Raises:
        BadSettings: If it is not of that shape.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise BadSettings(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(address: str) -> bool:
    """Tell whether `HOST:PORT` (or a Unix socket) can only be reached from this machine."""
    if address.startswith("unix:"):
        return True
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_exposed(address: str, *, secure: bool, insecure: bool) -> None:
    """Let nothing but loopback go without TLS (`secure`), unless an operator said `insecure`.

    Raises:
        BadSettings: If the address is open to others and neither holds.
    """
    if not (secure or insecure or is_loopback(address)):
        raise BadSettings(f"{address} is not loopback: give it TLS, or say --insecure")


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadSettings(f"{name} must be a table")
    return value


def _lookup(
    field: "Field[Any]", variable: str, layers: tuple[Mapping[str, Any], ...]
) -> tuple[bool, Any]:
    table, environ, flags = layers
    if flags.get(field.name) is not None:
        return True, flags[field.name]
    if variable in environ:
        return True, environ[variable]
    if field.name in table:
        return True, table[field.name]
    if field.default is MISSING and field.default_factory is MISSING:
        raise BadSettings(f"{variable} is missing")
    return False, None


def _convert(name: str, value: Any, kind: Any) -> Any:
    if isinstance(value, str) and get_origin(kind) in (tuple, list, frozenset):
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{name}: {error}") from error


def _path(kind: type, value: Any) -> Any:
    if issubclass(kind, Path) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"{kind.__name__} wanted")
