"""Files of released payloads: which are kept, for how long, and that nobody has them open."""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

import pytest

from stagemesh.payload.spares import SPARE_BYTES_MIN, Spares
from stagemesh.payload.stored import StoredFile
from tests.helpers.payloads import MIB

PREFIX: Final = "stagemesh-w-0000000000000001"


def spares_in(directory: Path, bytes_max: int = 8 * MIB) -> Spares:
    return Spares(directory, PREFIX, bytes_max=bytes_max, keep_s=60.0)


class Release(Protocol):
    """Makes a file of a released payload."""

    def __call__(self, size_bytes: int) -> StoredFile:
        """Give it a name of its own."""


@pytest.fixture
def released(tmp_path: Path) -> Iterator[Release]:
    files: list[StoredFile] = []

    def release(size_bytes: int) -> StoredFile:
        files.append(StoredFile(tmp_path / f"released-{len(files)}"))
        files[-1].write(memoryview(bytes(size_bytes)))
        return files[-1]

    yield release
    for file in files:
        file.remove()


def sizes_in(directory: Path) -> list[int]:
    return sorted(path.stat().st_size for path in directory.iterdir())


def map_whole(path: Path) -> mmap.mmap:
    """Map a file as any program may that knows nothing of spares; its descriptor is closed."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def test_a_kept_file_has_another_name_and_is_given_once(tmp_path: Path, released: Release) -> None:
    spares, file = spares_in(tmp_path), released(MIB)
    name = file.path
    spares.keep(file, 0.0)
    assert not name.exists()
    assert spares.bytes_used == MIB
    given = spares.take(MIB)
    assert given is not None
    assert given[1] is file
    assert file.path == tmp_path / f"{PREFIX}-{given[0]}"
    assert file.path.exists()
    assert spares.bytes_used == 0
    assert spares.take(MIB) is None


def opened(path: Path) -> Callable[[], None]:
    fd = os.open(path, os.O_RDONLY)
    return lambda: os.close(fd)


def opened_to_write(path: Path) -> Callable[[], None]:
    fd = os.open(path, os.O_RDWR)
    return lambda: os.close(fd)


def mapped(path: Path) -> Callable[[], None]:
    return map_whole(path).close


def seen_in_part(path: Path) -> Callable[[], None]:
    part = memoryview(map_whole(path))[5:6]
    return part.release


@pytest.mark.invariant("PAYLOAD-INV-100")
@pytest.mark.parametrize("use", [opened, opened_to_write, mapped, seen_in_part])
def test_a_file_is_not_given_while_anybody_uses_it(
    tmp_path: Path, released: Release, use: Callable[[Path], Callable[[], None]]
) -> None:
    spares, file = spares_in(tmp_path), released(MIB)
    let_go = use(file.path)
    spares.keep(file, 0.0)
    assert spares.take(MIB) is None
    assert spares.bytes_used == MIB
    let_go()
    assert spares.take(MIB) is not None


def test_a_file_that_is_in_use_does_not_stand_before_one_that_is_not(
    tmp_path: Path, released: Release
) -> None:
    spares, file = spares_in(tmp_path), released(MIB)
    kept = map_whole(file.path)
    spares.keep(file, 0.0)
    spares.keep(released(MIB), 0.0)
    assert spares.take(MIB) is not None
    assert spares.take(MIB) is None
    kept.close()


@pytest.mark.parametrize(
    ("size_bytes", "given"),
    [
        (MIB // 2, False),
        (MIB // 2 + 1, True),
        (MIB, True),
        (MIB + 1, False),
    ],
)
def test_a_file_is_given_for_its_size_and_down_to_half_of_it(
    tmp_path: Path, released: Release, size_bytes: int, given: bool
) -> None:
    spares = spares_in(tmp_path)
    spares.keep(released(MIB), 0.0)
    assert (spares.take(size_bytes) is not None) is given


def test_what_is_too_small_or_too_large_is_removed(tmp_path: Path, released: Release) -> None:
    spares = spares_in(tmp_path, MIB)
    for size_bytes in (0, SPARE_BYTES_MIN - 1, MIB + 1):
        spares.keep(released(size_bytes), 0.0)
    assert sizes_in(tmp_path) == []
    assert spares.bytes_used == 0


def test_the_longest_released_makes_way(tmp_path: Path, released: Release) -> None:
    spares = spares_in(tmp_path, 3 * MIB)
    for size_bytes in (MIB, MIB + 1, MIB + 2):
        spares.keep(released(size_bytes), 0.0)
    assert sizes_in(tmp_path) == [MIB + 1, MIB + 2]
    spares.make_way(1, 2 * MIB)
    assert sizes_in(tmp_path) == [MIB + 2]
    spares.make_way(1, MIB + 2)
    assert sizes_in(tmp_path) == [MIB + 2]


def test_the_number_of_files_is_bounded(tmp_path: Path, released: Release) -> None:
    spares = spares_in(tmp_path, 1024 * MIB)
    for _ in range(70):
        spares.keep(released(SPARE_BYTES_MIN), 0.0)
    assert len(sizes_in(tmp_path)) == 64


def test_the_tightest_file_is_given_and_of_equal_ones_the_longest_released(
    tmp_path: Path, released: Release
) -> None:
    spares = spares_in(tmp_path)
    files = [released(MIB + more) for index, more in enumerate((9, 0, 0))]
    for file in files:
        spares.keep(file, 0.0)
    given = [spares.take(MIB - 1) for _ in files]
    assert [one and files.index(one[1]) for one in given] == [1, 2, 0]


def test_the_number_of_files_that_stay_open_is_bounded(tmp_path: Path, released: Release) -> None:
    spares, given = spares_in(tmp_path, 1024 * MIB), []
    for _ in range(64):
        spares.keep(released(SPARE_BYTES_MIN), 0.0)
        given.append(spares.take(SPARE_BYTES_MIN))
    spares.keep(released(SPARE_BYTES_MIN), 0.0)
    assert None not in given
    assert spares.take(SPARE_BYTES_MIN) is None
    released_again = given.pop()
    assert released_again is not None
    spares.keep(released_again[1], 0.0)
    assert spares.take(SPARE_BYTES_MIN) is not None


def test_a_full_directory_gets_everything_back(
    tmp_path: Path, released: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    spares = spares_in(tmp_path)
    spares.keep(released(MIB), 0.0)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=9, f_frsize=4096))
    spares.make_way(9 * 4096, 8 * MIB)
    assert spares.bytes_used == MIB
    spares.make_way(9 * 4096 + 1, 8 * MIB)
    assert sizes_in(tmp_path) == []


def test_no_more_is_kept_than_an_eighth_of_the_directory(
    tmp_path: Path, released: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(f_blocks=8 * 256, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    spares = spares_in(tmp_path)
    spares.keep(released(MIB + 1), 0.0)
    assert sizes_in(tmp_path) == []
    spares.keep(released(MIB), 0.0)
    assert sizes_in(tmp_path) == [MIB]


def test_what_nobody_needs_goes_after_a_while(tmp_path: Path, released: Release) -> None:
    spares = spares_in(tmp_path)
    spares.keep(released(MIB), 10.0)
    spares.keep(released(MIB + 1), 11.0)
    spares.sweep(69.9)
    assert sizes_in(tmp_path) == [MIB, MIB + 1]
    spares.sweep(70.0)
    assert sizes_in(tmp_path) == [MIB + 1]
    spares.sweep(71.0)
    assert sizes_in(tmp_path) == []


def test_close_removes_everything_and_keeps_nothing_more(tmp_path: Path, released: Release) -> None:
    spares = spares_in(tmp_path)
    spares.keep(released(MIB), 0.0)
    spares.close()
    spares.keep(released(MIB), 0.0)
    spares.close()
    assert sizes_in(tmp_path) == []


def test_a_file_that_somebody_removed_is_neither_kept_nor_given(
    tmp_path: Path, released: Release
) -> None:
    spares = spares_in(tmp_path)
    file = released(MIB)
    file.path.unlink()
    spares.keep(file, 0.0)
    assert spares.bytes_used == 0
    spares.keep(released(MIB), 0.0)
    for path in tmp_path.iterdir():
        path.unlink()
    assert spares.take(MIB) is None
    spares.close()
    assert spares.bytes_used == 0


def refuse(*_: Any) -> int:
    raise OSError("no leases here")


def grant(*_: Any) -> int:
    return 0


@pytest.mark.invariant("PAYLOAD-INV-100")
@pytest.mark.parametrize("answer", [refuse, grant])
def test_nothing_is_kept_where_the_kernel_does_not_tell_who_reads(
    tmp_path: Path, released: Release, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., int]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", answer)
        spares = spares_in(tmp_path)
    spares.keep(released(MIB), 0.0)
    assert sizes_in(tmp_path) == []


def test_nothing_is_kept_by_who_may_keep_nothing(tmp_path: Path, released: Release) -> None:
    spares = spares_in(tmp_path, 0)
    spares.keep(released(MIB), 0.0)
    assert sizes_in(tmp_path) == []
