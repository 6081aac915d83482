"""Names of files, probes, and whose files may be removed."""

import fcntl
import os
from pathlib import Path

import pytest

from stagemesh.payload import remove_dead
from stagemesh.payload.files import (
    ProbeFile,
    data_path,
    matches_probe,
    open_named,
    store_prefix,
)

HANDLE_ID = "h_" + "ab" * 16


def leave(directory: Path, holder_id: str, incarnation: int) -> None:
    """Leave what a store that was killed leaves."""
    prefix = store_prefix(holder_id, incarnation)
    (directory / f"{prefix}-probe").write_bytes(b"0123456789abcdef")
    (directory / f"{prefix}-{HANDLE_ID}").write_bytes(b"data")


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_dead_store_of_the_same_holder_is_removed_and_no_other(tmp_path: Path) -> None:
    for holder_id in ("w-0", "w-0000000000000001", "ww", "x"):
        leave(tmp_path, holder_id, 1)
    (tmp_path / "stagemesh-w-notes.txt").write_text("somebody's")
    others = names(tmp_path)
    leave(tmp_path, "w", 1)
    leave(tmp_path, "w", 2)
    assert remove_dead(tmp_path, "w") == 4
    assert names(tmp_path) == others


def test_a_living_store_of_the_same_holder_is_left_alone(tmp_path: Path) -> None:
    living = ProbeFile(tmp_path, store_prefix("w", 1))
    assert remove_dead(tmp_path, "w") == 0
    living.let_go()
    assert remove_dead(tmp_path, "w") == 1


def test_a_store_that_is_just_being_made_is_whole_even_if_it_was_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead are removed between the moment when the probe is there and that of its lock."""
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.undo()
        assert remove_dead(tmp_path, "w") == 1
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    made = ProbeFile(tmp_path, store_prefix("w", 1))
    assert matches_probe(made.probe)
    assert remove_dead(tmp_path, "w") == 0
    made.close()


def test_what_another_user_holds_is_no_business_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, "w", 1)
    theirs = names(tmp_path)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert remove_dead(tmp_path, "w") == 0
    monkeypatch.undo()
    assert names(tmp_path) == theirs


def test_data_without_its_probe_is_dead(tmp_path: Path) -> None:
    leave(tmp_path, "w", 1)
    (tmp_path / f"{store_prefix('w', 1)}-probe").unlink()
    assert remove_dead(tmp_path, "w") == 1
    assert names(tmp_path) == set()


def test_a_holder_id_may_have_any_character(tmp_path: Path) -> None:
    for holder_id in ("a/b", "a*", "[a]", "ä ö", "a%2Fb"):
        leave(tmp_path, holder_id, 7)
    assert remove_dead(tmp_path, "a*") == 2
    assert remove_dead(tmp_path, "[a]") == 2
    assert remove_dead(tmp_path, "a/b") == 2
    assert len(names(tmp_path)) == 4


def test_a_probe_matches_only_with_its_token(tmp_path: Path) -> None:
    probe_file = ProbeFile(tmp_path, store_prefix("w", 1))
    assert matches_probe(probe_file.probe)
    path, _, token = probe_file.probe.rpartition("#")
    assert not matches_probe(f"{path}#{'0' * len(token)}")
    assert not matches_probe(f"{path}#")
    assert not matches_probe(f"{path}x#{token}")
    assert not matches_probe("")
    probe_file.close()
    assert not matches_probe(probe_file.probe)


def test_a_probe_that_is_a_link_or_a_folder_matches_nothing(tmp_path: Path) -> None:
    probe_file = ProbeFile(tmp_path, store_prefix("w", 1))
    (tmp_path / "link").symlink_to(probe_file.path)
    assert not matches_probe(f"{tmp_path}/link#{probe_file.probe.rpartition('#')[2]}")
    assert not matches_probe(f"{tmp_path}#")


@pytest.mark.parametrize(
    ("probe", "handle_id"),
    [
        ("/dev/shm/stagemesh-w-0000000000000001-probe#00", "../../etc/passwd"),
        ("/dev/shm/stagemesh-w-0000000000000001-probe#00", "h_short"),
        ("/etc/passwd#00", HANDLE_ID),
        ("/dev/shm/stagemesh-w-1-probe#00", HANDLE_ID),
        ("", HANDLE_ID),
    ],
)
def test_a_malformed_handle_leads_to_no_file(probe: str, handle_id: str) -> None:
    assert data_path(probe, handle_id) is None


def test_the_bytes_of_a_handle_lie_beside_its_probe() -> None:
    probe = "/dev/shm/stagemesh-w-0000000000000001-probe#00"
    assert data_path(probe, HANDLE_ID) == Path(f"/dev/shm/stagemesh-w-0000000000000001-{HANDLE_ID}")


def test_a_file_is_opened_as_long_as_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "named"
    path.write_bytes(b"data")
    os.close(open_named(path))
    before = len(os.listdir("/proc/self/fd"))
    other = path.stat()
    path.rename(tmp_path / "renamed")
    path.write_bytes(b"data")
    monkeypatch.setattr(Path, "lstat", lambda _: other)
    with pytest.raises(FileNotFoundError):
        open_named(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"data")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(OSError, match="symbolic links"):
        open_named(tmp_path / "link")
