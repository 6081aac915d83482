"""Breaks the code with each patch of `tests/mutants/`, and needs a red test for each.

A patch begins with lines `# breaks: RULE`, naming an invariant or a row of a table of moves, and
`# test: PATH::NAME`, the tests that must object. It is applied to a copy; the tree stays as it is.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final

__all__ = ["PATCHES", "Mutant", "fits", "judge", "mutants"]

ROOT: Final = Path(__file__).parents[1]
PATCHES: Final = ROOT / "tests" / "mutants"

LIMIT_S: Final = 60
"""What the tests of one mutant may take: far more than they need, for a busy machine."""

_RED: Final = 1
"""How pytest exits if tests ran and one failed; not if one is missing or cannot be imported."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One patch: what it breaks, and which tests must object."""

    path: Path
    breaks: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.stem


def mutants() -> list[Mutant]:
    """Read all patches.

    Raises:
        ValueError: If one does not say what it breaks and which test objects.
    """
    found: list[Mutant] = []
    for path in sorted(PATCHES.glob("*.patch")):
        head = path.read_text(encoding="utf-8").partition("\n--- ")[0]
        breaks = tuple(re.findall(r"^# breaks: (.+)$", head, re.MULTILINE))
        tests = tuple(re.findall(r"^# test: (.+)$", head, re.MULTILINE))
        if not breaks or not tests:
            raise ValueError(f"{path.name} does not say what it breaks and which test objects")
        found.append(Mutant(path, breaks, tests))
    return found


def fits(mutant: Mutant) -> str:
    """Say why a patch does not apply to the tree; empty if it does."""
    return _git("apply", "--check", str(mutant.path), tree=ROOT)


def judge(mutant: Mutant, tree: Path) -> tuple[str, bool]:
    """Run a mutant's tests in a copy of the tree; tell what came of it, and whether that is red."""
    if said := _git("apply", str(mutant.path), tree=tree):
        return f"does not apply: {said}", False
    try:
        code, said = _pytest(tree, mutant.tests)
    finally:
        _git("apply", "--reverse", str(mutant.path), tree=tree)
    red = re.findall(r"^FAILED (\S+)", said, re.MULTILINE)
    if code == _RED and red:
        return red[0], True
    return ("survives" if code == 0 else f"pytest exits {code}: {said[-500:]}"), False


def _git(*command: str, tree: Path) -> str:
    # A copy has no repository of its own, and must not find the one above it.
    environ = os.environ | {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(
        ["git", *command], cwd=tree, env=environ, capture_output=True, text=True, check=False
    )
    return done.stderr.strip() if done.returncode else ""


def _pytest(tree: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    # Byte code of the moment before would hide a patch of the same size.
    environ = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["-m", "pytest", "-x", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tree, env=environ, capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"not done after {LIMIT_S} s"
    return done.returncode, done.stdout + done.stderr


@contextmanager
def _copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Copy what git knows or would know of the tree, some times over."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    with TemporaryDirectory(prefix="stagemesh-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            tree = Path(folder) / str(number)
            for name in filter(None, listed.stdout.split("\0")):
                if (ROOT / name).is_file():
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, tree / name)
            trees.put(tree)
        yield trees


def _judged(mutant: Mutant, trees: SimpleQueue[Path]) -> tuple[str, bool]:
    tree = trees.get()
    try:
        return judge(mutant, tree)
    finally:
        trees.put(tree)


def main() -> int:
    """Judge mutants and print a table; 1 if one survives or cannot be judged."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of patches; all if none is given")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    wanted = parser.parse_args()
    todo = [one for one in mutants() if not wanted.names or one.name in wanted.names]
    survivors = 0
    with _copies(wanted.jobs) as trees, ThreadPoolExecutor(wanted.jobs) as pool:
        sound = trees.get()
        code, said = _pytest(sound, tuple(dict.fromkeys(t for one in todo for t in one.tests)))
        trees.put(sound)
        if code != 0:
            print(f"the tests are not green without a mutant:\n{said}", file=sys.stderr)
            return 1
        verdicts = pool.map(lambda one: _judged(one, trees), todo)
        print("| mutant | breaks | caught by |\n|---|---|---|")
        for mutant, (verdict, caught) in zip(todo, verdicts, strict=True):
            survivors += not caught
            shown = verdict if caught else f"**{verdict}**"
            print(f"| {mutant.name} | {'; '.join(mutant.breaks)} | {shown} |", flush=True)
    print(f"\n{len(todo)} mutants, {survivors} not caught", file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
