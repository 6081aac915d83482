import fcntl
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


def test_nothing_stays_of_a_run_from_which_there_is_nothing_to_learn() -> None:
    with RunFolder(ADDRESS) as folder:
        folder.write_state([], ready=True)
        (folder.logs / "w.log").write_text("words")
        folder.forget()
        assert read_state(ADDRESS)["ready"]
    assert not folder.path.exists()


def test_of_ended_runs_the_last_ones_are_kept_and_what_runs_is_left_alone() -> None:
    with RunFolder("127.0.0.1:1") as running:
        os.utime(running.path, (0, 0))
        ended = [RunFolder(f"127.0.0.1:{port}") for port in range(2, 13)]
        for at, folder in enumerate(ended):
            with folder:
                pass
            os.utime(folder.path, (at + 1, at + 1))
        with RunFolder(ADDRESS):
            assert running.path.exists()
            assert [folder.path.exists() for folder in ended] == [False] * 3 + [True] * 8


def test_a_folder_that_its_last_run_removes_meanwhile_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the opening of its lock and the lock, the run that ends removes the folder."""
    earlier = RunFolder(ADDRESS).__enter__()
    earlier.forget()
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.undo()
        earlier.__exit__()
        lock(descriptor, how)

    cache = os.environ["XDG_CACHE_HOME"]
    later = RunFolder(ADDRESS)
    monkeypatch.setattr(fcntl, "flock", late)
    with later:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        later.write_state([], ready=True)
        assert read_state(ADDRESS)["ready"]


def test_a_file_is_replaced_as_a_whole() -> None:
    with RunFolder(ADDRESS) as folder:
        folder.write("a.json", "one")
        with (folder.path / "a.json").open() as reader:
            folder.write("a.json", "two")
            assert reader.read() == "one"
        assert (folder.path / "a.json").read_text() == "two"
        assert {path.name for path in folder.path.iterdir()} == {"a.json", "lock", "logs"}
