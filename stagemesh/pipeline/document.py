"""A YAML text as plain values that remember their lines.

The dialect is YAML's JSON-like core: words, numbers, `true`, `false`, `null`, lists and mappings.
`yes`, `on`, `1:30` and dates are words, because guessing at them surprises people; anchors,
aliases, tags and a key given twice are mistakes.
"""

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

import yaml

from stagemesh.pipeline.problems import Path, Problem, path_text

__all__ = ["Document", "read_document"]

BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 32

_TAG: Final = "tag:yaml.org,2002:"


class Document(NamedTuple):
    """The values of a file, and the line (from 1) on which each path begins."""

    value: Any
    lines: Mapping[Path, int]

    def line(self, path: Path) -> int:
        """Give the line of a path, or of the nearest thing around it that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _CoreLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2's core schema only."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the shape that PyYAML asks for.


_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]{1,18}", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
)
for _name, _pattern, _first in _SCALARS:
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), _first)


def read_document(text: str) -> tuple[Document, list[Problem]]:
    """Read one YAML document; the value is None if it has no readable form."""
    if len(text.encode()) > BYTES_MAX:
        return _nothing(Problem(1, "", f"the file is larger than {BYTES_MAX} bytes"))
    try:
        problems = _surprises(text)
        if problems:
            return _nothing(*problems)
        node = _CoreLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        return _nothing(_syntax_problem(error))
    except yaml.YAMLError as error:  # A character that no YAML file may hold.
        return _nothing(Problem(1, "", f"not YAML: {error}"))
    if node is None:
        return _nothing(Problem(1, "", "the file is empty; it needs `pools` and `pipelines`"))
    reader = _Reader()
    value = reader.value(node, ())
    return Document(value, reader.lines), reader.problems


def _nothing(*problems: Problem) -> tuple[Document, list[Problem]]:
    return Document(None, {}), list(problems)


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    return Problem(mark.line + 1 if mark else 1, "", f"not YAML: {error.problem or error.context}")


def _surprises(text: str) -> list[Problem]:
    """Find what would read as something else than it looks like, or too deep to read at all."""
    problems, depth = [], 0
    events: Iterator[Any] = yaml.parse(text, Loader=_CoreLoader)
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            what = f"aliases (*{event.anchor}) are not allowed; write it out"
            problems.append(Problem(line, "", what))
        elif getattr(event, "anchor", None):
            problems.append(Problem(line, "", f"anchors (&{event.anchor}) are not allowed"))
        if getattr(event, "tag", None) is not None:
            problems.append(Problem(line, "", f"tags ({event.tag}) are not allowed"))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                problems.append(Problem(line, "", f"nested deeper than {DEPTH_MAX} levels"))
                break
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return problems


class _Reader:
    """Turns nodes into values, and notes lines and problems on the way."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []

    def value(self, node: Any, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, at)) for at, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str) or not key.isprintable():
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "here"
                what = f"the key {shown!r} is not a word; write it in quotes, on one line"
                self.problems.append(Problem(line, path_text(path), what))
                continue
            place = (*path, key)
            if key in values:
                first = self.lines[place]
                what = f"given twice, first on line {first}; one has to go"
                self.problems.append(Problem(line, path_text(place), what))
                continue
            self.lines[place] = line
            values[key] = self.value(value_node, place)
        return values


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text)
    if kind == "float":
        number = float(text)
        return number if isfinite(number) else text
    return text
