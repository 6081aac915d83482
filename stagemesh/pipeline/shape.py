"""What the schema finds, said in words that help whoever writes the file."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

import jsonschema

from stagemesh.pipeline.document import Document
from stagemesh.pipeline.problems import Path, Problem, path_text
from stagemesh.pipeline.schema import MODEL_NAME, VARIABLE, WORD, mesh_schema

__all__ = ["misshapen", "nearest"]

_Error = jsonschema.ValidationError

_KINDS: Final = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a mapping",
    "string": "a word or text",
}
_BOUNDS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "above",
}
_SIZES: Final = {
    "minItems": "needs at least {} entries",
    "maxItems": "has room for {} entries",
    "minProperties": "needs at least {} entries",
    "maxProperties": "has room for {} entries",
    "minLength": "needs at least {} characters",
    "maxLength": "has room for {} characters",
}
_PATTERNS: Final = {
    WORD: "lower-case letters and digits, joined by - or _, beginning with a letter",
    MODEL_NAME: "letters, digits and . _ / : - between them",
    VARIABLE: "letters, digits and _, beginning with no digit",
}

_SHOWN_MAX: Final = 60
_NAMES_MAX: Final = 8

_VALIDATOR: Final = jsonschema.Draft202012Validator(mesh_schema())


def misshapen(document: Document) -> dict[Path, list[Problem]]:
    """Find what does not fit the schema, by path."""
    found: dict[Path, list[Problem]] = {}
    for error in _VALIDATOR.iter_errors(document.value):
        for path, text in _explain(error, tuple(error.absolute_path)):
            problem = Problem(document.line(path), path_text(path), text)
            found.setdefault(path, []).append(problem)
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest what may have been meant: `; did you mean x?`, or what there is."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    more = " and more" if len(names) > _NAMES_MAX else ""
    return f"; there is {_listed(names[:_NAMES_MAX])}{more}" if names else "; there is none"


def _explain(error: _Error, path: Path) -> Iterator[tuple[Path, str]]:
    keyword: Any = error.validator
    wanted: Any = error.validator_value
    value: Any = error.instance
    schema: Any = error.schema
    if keyword == "additionalProperties":
        properties = schema["properties"]
        for key in (key for key in value if key not in properties):
            yield (*path, key), f"unknown key{nearest(key, properties)}"
    elif keyword == "required":
        for key in (key for key in wanted if key not in value):
            yield path, f"the key {key} is missing"
    elif "propertyNames" in error.absolute_schema_path:
        yield (*path, value), f"not a name: {_fault(keyword, wanted, value)}"
    else:
        yield path, _fault(keyword, wanted, value)


def _fault(keyword: Any, wanted: Any, value: Any) -> str:
    shown = _shown(value)
    if keyword == "type":
        return f"must be {_kinds(wanted)}, not {shown}{_quote_hint(wanted, value)}"
    if keyword == "enum":
        close = nearest(value, wanted) if isinstance(value, str) else ""
        return f"must be one of {_listed(wanted)}, not {shown}{close if 'mean' in close else ''}"
    if keyword in _BOUNDS:
        return f"must be {_BOUNDS[keyword]} {wanted}, not {shown}"
    if keyword in _SIZES:
        return _SIZES[keyword].format(wanted)
    if keyword == "uniqueItems":
        return "says the same thing twice"
    if keyword == "pattern":
        return f"{shown} must be {_PATTERNS[wanted]}"
    raise AssertionError(f"the schema uses {keyword}, which nobody explains")


def _quote_hint(wanted: Any, value: Any) -> str:
    scalar = isinstance(value, bool | int | float)
    return "; write it in quotes" if wanted == "string" and scalar else ""


def _kinds(wanted: str | list[str]) -> str:
    names = [wanted] if isinstance(wanted, str) else wanted
    return " or ".join(_KINDS[name] for name in names)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
