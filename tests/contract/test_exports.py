import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.code import ROOT, parsed, sources

MODULES = [path for path in sources("services", "stagemesh") if path.name != "__main__.py"]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def exported(path: Path) -> list[str] | None:
    """Give `__all__`; None where there is none."""
    for node in parsed(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                names: list[str] = ast.literal_eval(value)
                return names
    return None


def bound(path: Path) -> Iterator[str]:
    """Name what a module defines, or takes from elsewhere, at its top level."""
    for node in parsed(path).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign():
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.ImportFrom() | ast.Import():
                yield from (alias.asname or alias.name for alias in node.names)


def defined(path: Path) -> set[str]:
    """Name the public functions and classes that a module defines for others.

    A decorated function is a command of a program, whose owner is the decorator.
    """
    names = {
        node.name
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
        or (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list)
    }
    return {name for name in names if not name.startswith("_")}


def offered(path: Path) -> set[str]:
    """Name what a package takes from its own modules, which is what it offers to others."""
    package = ".".join(path.parent.relative_to(ROOT).parts)
    return {
        alias.asname or alias.name
        for node in parsed(path).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.")
        for alias in node.names
    }


def order(name: str) -> tuple[int, str]:
    """Constants come first, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_a_module_says_what_it_exports_and_has_it(path: Path) -> None:
    names = exported(path)
    if names is None:
        assert defined(path) == set()
        return
    assert names == sorted(set(names), key=order)
    assert set(names) <= set(bound(path))
    assert defined(path) <= set(names)


def is_front(path: Path) -> bool:
    """Tell whether a package's own code does nothing but collect names."""
    kinds = (ast.Assign, ast.Expr, ast.Import, ast.ImportFrom)
    return path.name == "__init__.py" and all(isinstance(node, kinds) for node in parsed(path).body)


@pytest.mark.parametrize("path", [path for path in MODULES if is_front(path)], ids=named)
def test_a_package_exports_all_that_it_offers(path: Path) -> None:
    public = {name for name in offered(path) if not name.startswith("_")}
    assert public <= set(exported(path) or ())
