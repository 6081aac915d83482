import struct
import zlib

import pytest

from services.stage_worker.engines.support.synthetic_media import (
    binary,
    colour_of,
    png,
    sample_at,
    samples,
)


@pytest.mark.parametrize(("seed", "start"), [(0, 0), (3, 479), (7, 2**31), (2**63, 5)])
def test_samples_are_what_their_positions_say(seed: int, start: int) -> None:
    found = struct.unpack("<64h", samples(seed, start, 64))
    assert list(found) == [sample_at(seed, start + at) for at in range(64)]


def test_a_missing_sample_shows() -> None:
    one, next_ = samples(1, 0, 100), samples(1, 1, 100)
    assert one[2:] == next_[:-2]
    assert one != next_
    assert samples(1, 0, 100) != samples(2, 0, 100)


def test_a_png_has_one_colour() -> None:
    data = png(3, 2, (10, 20, 30))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    start = data.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", data[start - 8 : start - 4])
    assert zlib.decompress(data[start : start + length]) == (b"\0" + bytes((10, 20, 30)) * 3) * 2


def test_a_png_is_padded_to_its_size_with_a_chunk_that_readers_skip() -> None:
    data = png(3, 2, (10, 20, 30), 100_000)
    assert len(data) == 100_000
    at, kinds = 8, []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert crc == zlib.crc32(kind + body)
        kinds.append(kind)
        at += 12 + length
    assert kinds == [b"IHDR", b"paDd", b"IDAT", b"IEND"]


def test_colours_differ_by_seed_and_frame() -> None:
    assert len({colour_of(seed) for seed in range(100)}) == 100
    assert len({colour_of(1, frame) for frame in range(100)}) == 100
    assert all(0 <= part < 256 for part in colour_of(2**64 - 1))


@pytest.mark.parametrize("size", [0, 1, 65_536, 200_001])
def test_bytes_have_their_size_and_follow_the_seed(size: int) -> None:
    assert len(binary(1, size)) == size
    assert size < 2 or binary(1, size) != binary(2, size)
