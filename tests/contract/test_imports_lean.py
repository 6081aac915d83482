"""What a program may import: its own extras' packages and nothing else."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import distribution, packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.code import ROOT, project, sources

MODEL_LIBRARIES = {
    "PIL", "accelerate", "av", "ctranslate2", "diffusers", "faster_whisper", "gguf", "inflect",
    "jinja2", "onnxruntime", "tokenizers", "torch", "transformers", "vllm",
}  # fmt: skip

PROGRAM = """\
import importlib, json, sys

blocked, wanted = json.loads(sys.argv[1]), json.loads(sys.argv[2])


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in blocked
        return None if hidden else self.finder.find_spec(name, path, target)


sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
for name in wanted:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def required(name: str) -> Iterator[str]:
    """Give what a distribution asks for; ours is asked in the checkout, not as it was installed."""
    if name != "stagemesh":
        yield from distribution(name).requires or ()
        return
    ours = project()["project"]
    yield from ours["dependencies"]
    for extra, lines in ours["optional-dependencies"].items():
        for line in lines:
            needed, _, marker = line.partition(";")
            here = f'extra == "{extra}"'
            yield f"{needed}; {here} and ({marker})" if marker else f"{needed}; {here}"


@cache
def closure(*extras: str) -> frozenset[str]:
    """Name the distributions that an installation with these extras has, by their metadata."""
    found: set[str] = set()
    waiting = [Requirement(f"stagemesh[{','.join(extras)}]")]
    while waiting:
        wanted = waiting.pop()
        for needed in map(Requirement, required(wanted.name)):
            marker = needed.marker
            applies = marker is None or any(
                marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)
            )
            if applies and canonicalize_name(needed.name) not in found:
                found.add(canonicalize_name(needed.name))
                waiting.append(needed)
    return frozenset(found)


def absent(*extras: str) -> set[str]:
    """Name the packages of this environment that such an installation would not have."""
    have = closure(*extras) | {"stagemesh"}
    return {
        name
        for name, owners in packages_distributions().items()
        if not any(canonicalize_name(owner) in have for owner in owners)
    } - {"services", "stagemesh"}


def imported(wanted: Iterable[str], blocked: Iterable[str]) -> set[str]:
    """Import modules where some packages are missing; give the packages that were imported."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(sorted(blocked)), json.dumps(sorted(wanted))],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout))


def modules(*folders: str) -> list[str]:
    """Name all modules of some folders."""
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sources(*folders)
    ]


def test_the_packages_that_are_blocked_are_here_to_be_blocked() -> None:
    gone = absent("gateway")
    assert {"ctranslate2", "diffusers", "onnxruntime", "pytest", "torch", "transformers"} <= gone
    assert not {"grpc", "google", "msgspec", "numpy", "uvicorn", "yaml"} & gone


@pytest.mark.parametrize("service", ["gateway", "orchestrator"])
def test_a_program_that_computes_nothing_needs_its_own_packages_only(service: str) -> None:
    blocked = absent(service) | MODEL_LIBRARIES | {"numpy", "safetensors"}
    wanted = modules(f"services/{service}")
    assert f"services.{service}.app" in wanted
    assert f"services.{service}.__main__" in wanted
    assert "grpc" in imported(wanted, blocked)


def test_the_library_needs_the_base_only() -> None:
    blocked = absent() | MODEL_LIBRARIES | {"numpy", "safetensors"}
    wanted = [name for name in modules("stagemesh") if not name.endswith("__main__")]
    assert len(wanted) > 50
    imported(wanted, blocked)


def test_a_scripted_worker_needs_the_base_only() -> None:
    named = ("app", "__main__", "engines.synthetic_engine")
    wanted = [
        *(f"services.stage_worker.{name}" for name in named),
        *modules("services/stage_worker/bridges", "services/stage_worker/core"),
    ]
    found = imported(wanted, absent() | MODEL_LIBRARIES)
    assert "numpy" in found
    assert not found & MODEL_LIBRARIES
