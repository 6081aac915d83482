"""The command line."""

from dataclasses import fields
from pathlib import Path

import pytest

from services.orchestrator import __main__ as program
from services.orchestrator.settings import Settings
from stagemesh.pipeline import Mesh

MESH = """\
pools:
  thinker: {engine: synthetic}
pipelines:
  echo:
    stages: {thinker: {pool: thinker}}
    outputs: {text: thinker}
"""


def arguments(mesh: Path, *more: str) -> list[str]:
    return ["--mesh", str(mesh), "--id", "o-0", "--discovery", "static:a=b@127.0.0.1:1", *more]


def test_every_setting_but_tls_has_a_flag_without_a_default_of_its_own() -> None:
    flags = vars(program._parser().parse_args([]))

    assert set(flags) == {field.name for field in fields(Settings)} - {"tls"}
    assert set(flags.values()) == {None}


def test_flags_reach_the_program_with_the_mesh_that_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Settings, Mesh]] = []

    async def serve(settings: Settings, mesh: Mesh) -> None:
        served.append((settings, mesh))

    monkeypatch.setattr(program, "serve", serve)
    monkeypatch.setattr(program, "configure_logs", lambda *args, **kwargs: None)
    monkeypatch.setenv("STAGEMESH_ORCHESTRATORS", "2")
    (mesh := tmp_path / "mesh.yaml").write_text(MESH)
    code = program.main(arguments(mesh, "--grpc", "127.0.0.1:7001", "--drain-s", "3"))

    [(settings, read)] = served
    assert code == 0
    assert (settings.grpc, settings.drain_s, settings.orchestrators) == ("127.0.0.1:7001", 3.0, 2)
    assert list(read.pipelines) == ["echo"]


def test_what_is_set_wrong_is_told_in_one_line_with_exit_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mesh := tmp_path / "mesh.yaml").write_text(MESH)

    assert program.main(arguments(mesh, "--orchestrators", "0")) == 2
    assert program.main(arguments(tmp_path / "missing.yaml")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "orchestrators must be at least 1" in lines[0]
    assert "missing.yaml" in lines[1]
