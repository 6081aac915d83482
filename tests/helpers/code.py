"""The code of this repository, as the tests of its shape see it."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["GENERATED", "ROOT", "contracts", "modules_under", "parsed", "project", "sources"]

ROOT: Final = Path(__file__).parents[2]

GENERATED: Final = ROOT / "stagemesh" / "api"


def sources(*folders: str) -> list[Path]:
    """List the hand-written modules of some folders of the repository."""
    found: list[Path] = []
    for folder in folders:
        paths = sorted((ROOT / folder).rglob("*.py"))
        found += [path for path in paths if not path.is_relative_to(GENERATED)]
    assert found
    return found


def modules_under(pattern: str) -> Iterator[Path]:
    """Find the modules of a package that a contract names: `a.*.b`, or `a.b.**` for all below."""
    folders = pattern.removesuffix(".**").replace(".", "/")
    for base in sorted(ROOT.glob(folders)):
        yield from sorted(base.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a module, once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def project() -> dict[str, Any]:
    """Read `pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def contracts() -> dict[str, dict[str, Any]]:
    """Give the import contracts by name."""
    return {one["name"]: one for one in project()["tool"]["importlinter"]["contracts"]}
