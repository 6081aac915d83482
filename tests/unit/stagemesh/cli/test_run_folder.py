import os
import stat
from pathlib import Path

import pytest

from stagemesh.cli.run_folder import AlreadyRunning, NotRunning, RunFolder, read_state

ADDRESS = "127.0.0.1:8000"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_state_is_read_while_the_mesh_runs_and_not_after() -> None:
    with RunFolder(ADDRESS) as folder:
        folder.write_state([{"role": "gateway"}], ready=True)
        assert read_state(ADDRESS) == {
            "launcher_pid": os.getpid(),
            "ready": True,
            "processes": [{"role": "gateway"}],
        }
    with pytest.raises(NotRunning, match=r"no mesh runs at 127\.0\.0\.1:8000"):
        read_state(ADDRESS)


def test_the_folder_is_named_by_the_address_below_the_cache(cache: Path) -> None:
    with RunFolder(ADDRESS) as folder:
        assert folder.path == cache / "stagemesh" / "run" / ADDRESS
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_a_state_that_a_killed_launcher_left_is_not_believed() -> None:
    with RunFolder(ADDRESS) as folder:
        folder.write_state([], ready=True)
        left = (folder.path / "state.json").read_bytes()
    (folder.path / "state.json").write_bytes(left)
    with pytest.raises(NotRunning):
        read_state(ADDRESS)


def test_two_meshes_cannot_run_at_one_address() -> None:
    with RunFolder(ADDRESS), pytest.raises(AlreadyRunning, match="a mesh runs there already"):
        RunFolder(ADDRESS).__enter__()
    with RunFolder(ADDRESS) as one, RunFolder("127.0.0.1:8001") as other:
        assert one.path != other.path


def test_the_logs_of_an_earlier_run_go_when_the_next_begins() -> None:
    with RunFolder(ADDRESS) as folder:
        (folder.logs / "w.log").write_text("words")
    assert (folder.logs / "w.log").read_text() == "words"
    with RunFolder(ADDRESS) as folder:
        assert list(folder.logs.iterdir()) == []


def test_a_file_is_replaced_as_a_whole() -> None:
    with RunFolder(ADDRESS) as folder:
        folder.write("a.json", "one")
        with (folder.path / "a.json").open() as reader:
            folder.write("a.json", "two")
            assert reader.read() == "one"
        assert (folder.path / "a.json").read_text() == "two"
        assert {path.name for path in folder.path.iterdir()} == {"a.json", "lock", "logs"}
