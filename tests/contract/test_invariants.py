"""The registry of invariants is whole, and the rules of direction hold in the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.code import ROOT, parsed, sources
from tests.helpers.invariants import INVARIANTS, NOT_YET, PAGE, page, proofs


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def callers(name: str) -> set[str]:
    """Find the modules that call something of this name."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in sources("services", "stagemesh")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    }


def importers(of: str, *folders: str) -> set[str]:
    """Find the modules of some folders that import a module or something of it."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in sources(*folders)
        if any(name == of or name.startswith(f"{of}.") for name in imports(path))
    }


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.helpers.invariants"


def test_every_invariant_has_a_test_and_every_mark_names_one() -> None:
    marked = {proof.invariant for proof in proofs()}
    assert marked == {invariant.name for invariant in INVARIANTS}


def test_the_numbers_are_given_once() -> None:
    names = [invariant.name for invariant in INVARIANTS]
    assert len(set(names)) == len(names)
    assert not set(names) & set(NOT_YET)


def test_what_is_not_claimed_is_not_built() -> None:
    assert [name for name, folder in NOT_YET.items() if folder.exists()] == []


@pytest.mark.invariant("ORCH-INV-001")
def test_only_the_orchestrator_makes_work_for_a_stage() -> None:
    assert callers("SubmitAttempts") == {"services/orchestrator/core/submitting.py"}
    assert callers("worker_rows") <= {
        path.relative_to(ROOT).as_posix() for path in sources("services/orchestrator/core")
    }
    assert callers("Submit") == {"services/orchestrator/translate/submits.py"}


@pytest.mark.invariant("ORCH-INV-002")
def test_no_client_of_a_stage_and_no_worker_knows_what_comes_next() -> None:
    clients = "services/orchestrator/workers"
    for module in ("plan", "routing", "placing", "submitting"):
        assert importers(f"services.orchestrator.core.{module}", clients) == set()
    assert importers("stagemesh.pipeline", clients) == set()
    # A worker's composition root reads its pool's part of the mesh file, and hands on that alone.
    assert importers("stagemesh.pipeline", "services/stage_worker") == {
        "services/stage_worker/__main__.py", "services/stage_worker/app.py",
    }  # fmt: skip


@pytest.mark.invariant("ENTRY-INV-001")
def test_a_gateway_knows_no_pipeline() -> None:
    assert importers("stagemesh.pipeline", "services/gateway") == set()
