"""The patches of `tests/mutants/` fit the tree and break every rule that a patch can break.

`make mutants` runs them: it needs a red test for each.
"""

from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from services.orchestrator.core.moves import ATTEMPT_MOVES, GROUP_MOVES, REQUEST_MOVES
from tests.helpers.code import ROOT, parsed
from tests.helpers.invariants import INVARIANTS
from tools import mutants as tool
from tools.mutants import Mutant, fits, judge, mutants

MUTANTS: Final = mutants()
ROWS: Final = {
    f"{table.title} {move.source.name} {move.to.name}"
    for table in (REQUEST_MOVES, ATTEMPT_MOVES, GROUP_MOVES)
    for move in table.moves
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_patch_fits_the_tree(mutant: Mutant) -> None:
    assert fits(mutant) == ""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_must_object_are_there(mutant: Mutant) -> None:
    for test in mutant.tests:
        path, _, name = test.partition("::")
        if name:
            functions = {getattr(node, "name", "") for node in parsed(ROOT / path).body}
            assert name.partition("[")[0] in functions
        else:
            assert (ROOT / path).exists()


def test_every_invariant_and_every_row_is_broken_by_a_patch() -> None:
    broken = set(chain.from_iterable(mutant.breaks for mutant in MUTANTS))
    assert broken == {invariant.name for invariant in INVARIANTS} | ROWS


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """Make a tree with one module and its test."""
    (tmp_path / "double.py").write_text("def double(number):\n    return 2 * number\n")
    (tmp_path / "test_double.py").write_text(
        "from double import double\n\ndef test_two():\n    assert double(2) == 4\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("instead", "test", "caught", "verdict"),
    [
        ("3 * number", "test_double.py::test_two", True, "test_double.py::test_two"),
        ("number * number", "test_double.py::test_two", False, "survives"),
        ("3 * number", "test_double.py::test_three", False, "pytest exits 4"),
        ("(", "test_double.py::test_two", False, "pytest exits"),
    ],
)
def test_only_a_red_test_counts(
    small_tree: Path, instead: str, test: str, caught: bool, verdict: str
) -> None:
    patch = small_tree / "mutant.patch"
    patch.write_text(
        f"# breaks: it\n# test: {test}\n--- a/double.py\n+++ b/double.py\n"
        f"@@ -1,2 +1,2 @@\n def double(number):\n-    return 2 * number\n+    return {instead}\n"
    )
    before = (small_tree / "double.py").read_text()
    said, is_caught = judge(Mutant(patch, ("it",), (test,)), small_tree)
    assert is_caught is caught
    assert said.startswith(verdict)
    assert (small_tree / "double.py").read_text() == before


def test_a_patch_that_does_not_say_what_it_is_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent.patch").write_text("--- a/x\n+++ b/x\n")
    monkeypatch.setattr(tool, "PATCHES", tmp_path)
    with pytest.raises(ValueError, match="silent"):
        mutants()
