from pathlib import Path

import pytest

from services.stage_worker.__main__ import USAGE_ERROR, main

MESH = """
pools:
  any: {engine: synthetic}
pipelines:
  echo: {stages: {thinker: {pool: any, bridge: script}}, outputs: {text: thinker}}
"""


@pytest.mark.parametrize(
    ("pool", "text", "says"),
    [("other", MESH, "other"), ("any", "pools: 3\n", "mesh.yaml")],
)
def test_what_is_set_wrong_is_said_and_nothing_starts(
    pool: str, text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text(text)
    flags = ["--mesh", str(mesh), "--pool", pool, "--replica-id", "r", "--listen", "127.0.0.1:1"]
    assert main(flags) == USAGE_ERROR
    assert says in capsys.readouterr().err


def test_a_missing_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == USAGE_ERROR
    assert "STAGEMESH_MESH" in capsys.readouterr().err
