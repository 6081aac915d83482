"""One file: written, written again, asked about, renamed and removed."""

import fcntl
import os
from pathlib import Path

import pytest

from stagemesh.payload.stored import StoredFile
from tests.helpers.payloads import MIB, noise


@pytest.fixture
def file(tmp_path: Path) -> StoredFile:
    return StoredFile(tmp_path / "file")


@pytest.mark.parametrize("sizes", [(5 * MIB, 5 * MIB), (5 * MIB, 5 * MIB - 1, 3 * MIB + 5, MIB)])
def test_it_has_the_bytes_that_were_written_last_and_no_others(
    file: StoredFile, sizes: tuple[int, ...]
) -> None:
    for index, size_bytes in enumerate(sizes):
        data = noise(size_bytes + index)[index:]
        assert index == 0 or file.has_no_other_user()
        file.write(memoryview(data))
        assert file.size_bytes == size_bytes
        assert file.path.read_bytes() == data
    file.remove()


def test_it_is_written_in_place(file: StoredFile) -> None:
    file.write(memoryview(bytes(MIB)))
    with file.path.open("rb") as before:
        assert not file.has_no_other_user()
    assert file.has_no_other_user()
    fd = os.open(file.path, os.O_PATH)  # It keeps the number of the inode, and is no user.
    file.write(memoryview(noise(MIB)))
    assert os.path.samestat(os.fstat(fd), file.path.stat())
    assert before.closed
    os.close(fd)
    file.remove()


def test_it_is_written_without_the_help_of_an_older_kernel_too(
    file: StoredFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagemesh.payload.stored._MADV_POPULATE_READ", 9999)
    file.write(memoryview(bytes(MIB)))
    assert file.has_no_other_user()
    file.write(memoryview(noise(MIB)))
    assert file.path.read_bytes() == noise(MIB)
    file.remove()


def test_a_name_that_is_taken_is_not_written(file: StoredFile) -> None:
    file.path.symlink_to("/nowhere")
    with pytest.raises(FileExistsError):
        file.write(memoryview(b"abc"))


def test_what_cannot_be_written_leaves_nothing(
    file: StoredFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError("no room")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match="no room"):
        file.write(memoryview(b"abc"))
    assert not file.path.exists()


def test_it_can_be_removed_twice_and_lets_go_of_everything(file: StoredFile) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file.write(memoryview(bytes(MIB)))
    assert file.has_no_other_user()
    file.write(memoryview(bytes(MIB)))
    assert len(os.listdir("/proc/self/fd")) > before
    file.remove()
    file.remove()
    assert not file.path.exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_gone_has_users_for_all_we_know(file: StoredFile) -> None:
    assert not file.has_no_other_user()


def test_who_opens_a_file_while_it_is_asked_about_does_not_wait_and_ends_nobody(
    file: StoredFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, refused = fcntl.fcntl, []
    file.write(memoryview(bytes(MIB)))

    def ask_and_be_disturbed(fd: int, command: int, argument: int) -> int:
        answer = ask(fd, command, argument)
        if (command, argument) == (fcntl.F_SETLEASE, fcntl.F_WRLCK):
            with pytest.raises(BlockingIOError) as caught:
                os.open(file.path, os.O_RDONLY | os.O_NONBLOCK)
            refused.append(caught.value)
        return answer

    monkeypatch.setattr(fcntl, "fcntl", ask_and_be_disturbed)
    assert file.has_no_other_user()
    assert len(refused) == 1
    file.remove()
