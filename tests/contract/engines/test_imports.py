"""An engine imports its own library and no other, so that a worker starts fast and stays small."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from typing import Final

import pytest

from services.stage_worker.engines import ENGINES_GROUP

LIBRARIES: Final = frozenset(
    {"ctranslate2", "diffusers", "faster_whisper", "onnxruntime", "torch", "transformers", "vllm"}
)
OWN: Final = {
    "ctranslate2": {"ctranslate2"},
    "diffusers": {"diffusers", "torch", "transformers"},
    "piper": {"onnxruntime"},
    "synthetic": set[str](),
    "transformers": {"torch", "transformers"},
    "vllm": {"torch", "transformers", "vllm"},
    "whisper": {"ctranslate2", "faster_whisper"},
}
PROGRAM: Final = """
import json, sys
from services.stage_worker.engines import find_engine
from stagemesh.errors import BadSettings
try:
    find_engine(sys.argv[1])
except BadSettings as error:
    sys.exit(f"cannot: {error}")
print(json.dumps([name for name in sys.modules if "." not in name]))
"""


def test_every_engine_is_looked_at() -> None:
    assert {entry.name for entry in entry_points(group=ENGINES_GROUP)} >= OWN.keys()


@pytest.mark.parametrize("name", sorted(OWN))
def test_an_engine_imports_its_own_library_only(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, check=False
    )
    if ran.returncode != 0 and "cannot: " in ran.stderr:
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stderr
    modules = set(json.loads(ran.stdout.splitlines()[-1]))
    assert modules & LIBRARIES == OWN[name]
