import os
from pathlib import Path

import pytest

from services.stage_worker.engines.support.scratch import Scratch, environment


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_scratch_folder_is_private_and_gone_once_closed() -> None:
    scratch = Scratch("name")
    (scratch.path / "socket").touch()
    assert scratch.path.stat().st_mode & 0o077 == 0
    scratch.close()
    assert not scratch.path.exists()


def test_folders_of_the_living_stay() -> None:
    first, second = Scratch("name"), Scratch("name")
    assert first.path.exists()
    assert first.path != second.path
    first.close()
    second.close()


def test_a_folder_of_somebody_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError):
        Scratch("name")


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", "before")
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(RuntimeError), environment({"THERE": "now", "NOT_THERE": "now"}):
        assert os.environ["THERE"] == os.environ["NOT_THERE"] == "now"
        raise RuntimeError
    assert os.environ["THERE"] == "before"
    assert "NOT_THERE" not in os.environ
