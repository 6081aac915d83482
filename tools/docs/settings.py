"""The page of settings: every field, its variable, its flag and its default."""

import argparse
import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_type_hints

from tools.docs.tables import code, table

__all__ = ["settings_page"]

_SERVICES: Final = ("gateway", "orchestrator", "stage_worker")
_PREFIX: Final = "STAGEMESH"
_KIB: Final = 1 << 10

_HEAD: Final = """\
# Settings

Generated from the settings classes of the services; do not edit.

Each program takes its settings from flags, else from the environment, else from the defaults here.
A variable that no setting claims is ignored; an unknown flag is an error.
`stagemesh up` passes the flags that its processes need, and its own environment, to each of them.
What the mesh file sets is in [the schema](mesh.schema.json).
"""


def settings_page() -> str:
    """Write the page."""
    page = _HEAD
    for service in _SERVICES:
        settings = import_module(f"services.{service}.settings").Settings
        flags = _flags(import_module(f"services.{service}.__main__")._parser())
        rows = list(_rows(settings, _PREFIX, flags))
        page += f"\n## `python -m services.{service}`\n\n"
        page += table(("variable", "flag", "type", "default", "meaning"), rows)
    return page


def _flags(parser: argparse.ArgumentParser) -> dict[str, str]:
    return {
        action.dest: action.option_strings[-1]
        for action in parser._actions
        if action.option_strings
    }


def _rows(cls: type, prefix: str, flags: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    hints, texts = get_type_hints(cls), _texts(cls)
    for field in fields(cls):
        kind = hints[field.name]
        variable = f"{prefix}_{field.name}".upper()
        if is_dataclass(kind):
            assert isinstance(kind, type)
            yield from _rows(kind, variable, {})
            continue
        yield (
            code(variable),
            code(flags.get(field.name, "")),
            _type_name(kind),
            _default(field),
            texts.get(field.name, ""),
        )


def _texts(cls: type) -> dict[str, str]:
    """Read what stands below each field of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for before, node in zip(body.body, body.body[1:], strict=False):
        match before, node:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
    return texts


def _type_name(kind: Any) -> str:
    names = {bool: "yes or no", float: "number", int: "whole number", str: "text", Path: "path"}
    return names.get(kind, "names, by comma")


def _default(field: "Field[Any]") -> str:
    if field.default is MISSING:
        return "must be set" if field.default_factory is MISSING else ""
    match field.default:
        case bool(value):
            return "yes" if value else "no"
        case int(value) if value >= _KIB and value % _KIB == 0:
            return _size(value)
        case float(value):
            return f"{value:g}"
        case () | "":
            return ""
        case value:
            return code(value)


def _size(value: int) -> str:
    unit = "KiB"
    value //= _KIB
    for larger in ("MiB", "GiB"):
        if value % _KIB == 0:
            value, unit = value // _KIB, larger
    return f"{value} {unit}"
