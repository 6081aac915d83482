import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers.code import GENERATED, ROOT


def generated(folder: Path) -> dict[str, bytes]:
    """Read the stubs of a tree."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in {".py", ".pyi"}
    }


def test_the_committed_stubs_are_what_make_protos_generates(tmp_path: Path) -> None:
    for name in ("Makefile", "buf.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    tools = str(Path(sys.executable).parent)
    environ = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        ["make", "protos", "SETUP=:"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr

    fresh, committed = generated(tmp_path / "stagemesh" / "api"), generated(GENERATED)
    assert len(fresh) > 20
    assert sorted(committed) == sorted(fresh)
    assert [name for name, data in fresh.items() if committed[name] != data] == []
