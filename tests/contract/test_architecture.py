import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from stagemesh.outcome import REASONS
from tests.helpers.code import ROOT, contracts, modules_under, parsed, project, sources

MODULE_LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 60

CODE: Final = ("services", "stagemesh", "tools")
BANNED_NAMES: Final = frozenset(
    {"common", "handler", "helpers", "manager", "misc", "util", "utils"}
)
"""Words that say nothing of what is inside; `tests/helpers` is the one folder that may."""

REASONS_MODULE: Final = ROOT / "stagemesh" / "outcome" / "reasons.py"
ENGINES: Final = ROOT / "services" / "stage_worker" / "engines"


def lint_imports(root: Path, cache: Path) -> tuple[int, str]:
    """Check the contracts of a tree."""
    environ = os.environ | {"PYTHONPATH": str(root), "COLUMNS": "200", "NO_COLOR": "1"}
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    run = subprocess.run(
        [sys.executable, "-c", program, "--no-logo", "--cache-dir", str(cache)],
        cwd=root, env=environ, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    return run.returncode, run.stdout + run.stderr


@pytest.mark.invariant("ORCH-INV-004")
def test_every_import_contract_is_kept(tmp_path: Path) -> None:
    code, said = lint_imports(ROOT, tmp_path)
    assert code == 0, said
    assert f"{len(contracts())} kept, 0 broken" in said


class Offence(NamedTuple):
    """A line that some contract must object to."""

    contract: str
    module: str
    line: str


OFFENCES: Final = (
    Offence(
        "Services stand on the library, never the other way round",
        "stagemesh/ids.py",
        "import services.gateway",
    ),
    Offence(
        "Services meet on the wire, never in an import",
        "services/gateway/app.py",
        "import services.orchestrator.core",
    ),
    Offence("The library is layered", "stagemesh/media/lanes.py", "import stagemesh.rpc"),
    Offence("The library is layered", "stagemesh/kitchen.py", "SINK = 1"),
    Offence(
        "The gateway is layered", "services/gateway/core/access.py", "import services.gateway.edges"
    ),
    Offence("The gateway is layered", "services/gateway/kitchen.py", "SINK = 1"),
    Offence(
        "The orchestrator is layered",
        "services/orchestrator/servicer/ports.py",
        "import services.orchestrator.workers",
    ),
    Offence(
        "The stage worker is layered",
        "services/stage_worker/core/limits.py",
        "import services.stage_worker.bridges",
    ),
    Offence("The sans-I/O packages do no I/O", "services/orchestrator/core/plan.py", "import time"),
    Offence("The sans-I/O packages do no I/O", "stagemesh/link/core/slots.py", "import asyncio"),
    Offence(
        "The sans-I/O packages do no I/O", "services/stage_worker/bridges/prompt.py", "import os"
    ),
    Offence(
        "Only the edges speak protobuf",
        "services/orchestrator/driver/ledger.py",
        "import stagemesh.api.types.v1.link_pb2",
    ),
    Offence("Only the edges speak gRPC", "services/stage_worker/driver/ledger.py", "import grpc"),
    Offence(
        "Model libraries stay inside their engine",
        "services/stage_worker/engines/support/steps.py",
        "import torch",
    ),
    Offence(
        "The gateway and the orchestrator compute nothing",
        "services/orchestrator/translate/views.py",
        "import numpy",
    ),
    Offence(
        "Engines do not know each other",
        "services/stage_worker/engines/piper_engine.py",
        "import services.stage_worker.engines.whisper_engine",
    ),
    Offence(
        "No cycles between siblings",
        "stagemesh/outcome/values.py",
        "import stagemesh.outcome.table",
    ),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for package in ("services", "stagemesh"):
        leave = shutil.ignore_patterns("__pycache__", "*.safetensors")
        shutil.copytree(ROOT / package, root / package, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


@pytest.mark.parametrize("offence", OFFENCES, ids=lambda one: f"{one.module}: {one.line}")
def test_an_offence_is_objected_to(copy: Path, offence: Offence) -> None:
    module = copy / offence.module
    before = module.read_text() if module.exists() else None
    module.write_text((before or "") + f"\n{offence.line}\n")
    try:
        code, said = lint_imports(copy, copy / "cache")
    finally:
        if before is None:
            module.unlink()
        else:
            module.write_text(before)
    assert code == 1, said
    assert re.search(rf"^{re.escape(offence.contract)} BROKEN\b", said, re.MULTILINE), said


def test_every_contract_has_been_seen_to_object() -> None:
    assert {offence.contract for offence in OFFENCES} == set(contracts())


@pytest.mark.invariant("ORCH-INV-004")
def test_nothing_that_decides_can_wait() -> None:
    patterns = contracts()["The sans-I/O packages do no I/O"]["source_modules"]
    modules = [path for pattern in patterns for path in modules_under(pattern)]
    assert len(modules) > 50
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules
        for node in ast.walk(parsed(path))
        if isinstance(node, waiting)
    ]
    assert found == []


def test_every_engine_is_named_by_an_entry_point_and_by_the_contract() -> None:
    modules = {f"services.stage_worker.engines.{path.stem}" for path in ENGINES.glob("*_engine.py")}
    points = project()["project"]["entry-points"]["stagemesh.engines"]
    assert {point.partition(":")[0] for point in points.values()} == modules
    assert set(contracts()["Engines do not know each other"]["modules"]) == modules
    assert {name: point.rpartition(".")[2] for name, point in points.items()} == {
        name: f"{name}_engine:create" for name in points
    }


def names_in(path: Path) -> Iterator[str]:
    yield from path.relative_to(ROOT).with_suffix("").parts


def test_a_module_is_named_for_what_is_inside() -> None:
    found = [path for path in sources(*CODE) if BANNED_NAMES & set(names_in(path))]
    assert found == []


def test_a_module_is_short_enough_to_be_read_in_one_go() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n")
        for path in sources(*CODE, "tests")
    }
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_a_function_is_short_enough_to_be_read_at_a_glance() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in sources(*CODE, "tests")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


FORKS: Final = frozenset({"fork", "forkpty", "preexec_fn"})
"""What would run Python in a copy of a process that has gRPC's threads."""


def test_nothing_of_ours_forks_a_process_with_threads() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("services", "stagemesh")
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Attribute) and node.attr in FORKS)
        or (isinstance(node, ast.keyword) and node.arg in FORKS)
        or (isinstance(node, ast.Constant) and node.value in FORKS)
    ]
    assert found == []


def test_no_streamed_call_is_read_without_somebody_who_can_cancel_it() -> None:
    """A call that is dropped stays open, so it has a name and an owner: never `async for` on it."""
    found = [
        f"{path.relative_to(ROOT)}:{node.iter.lineno}"
        for path in sources("services", "stagemesh")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.AsyncFor | ast.comprehension)
        and isinstance(node.iter, ast.Call)
        and isinstance(node.iter.func, ast.Attribute)
        and node.iter.func.attr[0].isupper()
    ]
    assert found == []


def test_every_reason_is_given_by_somebody_or_is_the_one_word_for_its_code() -> None:
    """Such a word may come from elsewhere: an engine, a proxy, a later peer."""
    words = {
        node.value
        for path in sources("services", "stagemesh")
        if path != REASONS_MODULE
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
    }
    codes = Counter(reason.code for reason in REASONS.values())
    alone = {word for word, reason in REASONS.items() if codes[reason.code] == 1}
    assert REASONS.keys() - words - alone == set()
