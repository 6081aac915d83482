from pathlib import Path

import pytest

from stagemesh.cli.meshes import NoMeshFile, read_mesh, shipped_folder
from stagemesh.pipeline import MeshFileError

TEXT = """\
pools: {p: {engine: synthetic}}
pipelines: {m: {stages: {s: {pool: p}}, outputs: {text: s}}}
"""


def test_a_mesh_is_found_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    found = read_mesh(str(path))
    assert (found.path, found.text) == (str(path), TEXT)
    assert set(found.mesh.pipelines) == {"m"}


def test_a_shipped_mesh_is_found_by_name() -> None:
    found = read_mesh("synthetic")
    assert Path(found.path) == shipped_folder() / "synthetic.yaml"
    assert "echo" in found.mesh.pipelines


def test_a_file_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert set(read_mesh("demo").mesh.pipelines) == {"m"}


@pytest.mark.parametrize("name", ["nowhere", "sub/demo", "demo.yml", "/"])
def test_a_mesh_that_is_not_there_is_told_with_what_is(name: str) -> None:
    with pytest.raises(NoMeshFile, match=r"the shipped meshes are demo, demo-light, synthetic"):
        read_mesh(name)


def test_a_file_that_is_not_text_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(b"pools: {}\n# \xff\n")
    with pytest.raises(MeshFileError, match="line 2: not UTF-8 text"):
        read_mesh(str(path))
