"""The page of metrics: every one that the code makes, by the calls that make it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.docs.tables import code, table

__all__ = ["metrics_page"]

_ROOT: Final = Path(__file__).parents[2]
_KINDS: Final = ("counter", "gauge", "histogram")

_PLACES: Final = (
    ("Gateway", "services/gateway"),
    ("Orchestrator", "services/orchestrator"),
    ("Stage worker", "services/stage_worker"),
    ("Every process that uses the part", "stagemesh"),
)

_HEAD: Final = """\
# Metrics

Generated from the calls that make them; do not edit.

The gateway serves `/metrics` on its HTTP port, the others on the port that `--metrics` names.
Labels take values from small sets, never ids; a metric that has all the series it may have counts the rest as `other`.
The usual `process_*` and `python_*` metrics are there too.
"""  # noqa: E501 - one sentence a line.


class _Metric(NamedTuple):
    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def metrics_page() -> str:
    """Write the page."""
    page = _HEAD
    for title, folder in _PLACES:
        made = sorted(_made(_ROOT / folder))
        rows = [
            (code(one.name), one.kind, ", ".join(map(code, one.labels)), one.text) for one in made
        ]
        page += f"\n## {title}\n\n{table(('metric', 'kind', 'labels', 'meaning'), rows)}"
    return page


def _made(folder: Path) -> Iterator[_Metric]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=kind),
                    args=[ast.Constant(value=str(name)), ast.Constant(value=str(text)), *more],
                ) if kind in _KINDS:
                    yield _Metric(_full(name, kind), kind, _labels(more), text)


def _full(name: str, kind: str) -> str:
    return f"stagemesh_{name}{'_total' if kind == 'counter' else ''}"


def _labels(arguments: list[ast.expr]) -> tuple[str, ...]:
    return tuple(ast.literal_eval(arguments[0])) if arguments else ()
