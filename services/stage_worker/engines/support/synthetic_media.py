"""Audio, images and bytes as functions of a position and a seed, so that readers can check."""

import struct
import zlib
from functools import lru_cache
from typing import Final

import numpy as np

__all__ = ["SAMPLE_RATE_HZ", "binary", "colour_of", "png", "sample_at", "samples"]

SAMPLE_RATE_HZ: Final = 24_000

_STEP: Final = 2_654_435_761
_AMPLITUDE_BITS: Final = 14
_BLOCK_BYTES: Final = 64 * 1024


def sample_at(seed: int, pos: int) -> int:
    """Give the sample at a position: `((pos + seed * 97) * 2654435761 mod 2^32 >> 18) - 2^13`.

    Neighbours differ widely, so a sample that is missing or comes twice shows at once.
    """
    return ((pos + seed * 97) * _STEP % 2**32 >> 32 - _AMPLITUDE_BITS) - (1 << _AMPLITUDE_BITS - 1)


def samples(seed: int, start: int, count: int) -> bytes:
    """Give samples `[start, start + count)` as signed 16-bit little-endian mono."""
    first = np.uint32((start + seed * 97) % 2**32)
    positions = np.arange(count, dtype=np.uint32) + first
    words = (positions * np.uint32(_STEP)) >> np.uint32(32 - _AMPLITUDE_BITS)
    signed = words.astype(np.int32) - (1 << _AMPLITUDE_BITS - 1)
    return signed.astype("<i2").tobytes()


def colour_of(seed: int, frame: int = 0) -> tuple[int, int, int]:
    """Give the red, green and blue of a seed's image, or of a frame of its video."""
    mixed = (seed + frame * 7 + 1) * _STEP % 2**32
    return mixed >> 24, mixed >> 16 & 0xFF, mixed >> 8 & 0xFF


@lru_cache(maxsize=64)
def png(width: int, height: int, colour: tuple[int, int, int], size_bytes: int = 0) -> bytes:
    """Make a PNG of one colour; padded to `size_bytes`, if it is smaller than that."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes(colour) * width) * height, 1)
    start = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head)
    end = _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    missing = size_bytes - len(start) - len(end) - 12  # A chunk has 12 bytes around its data.
    padding = _chunk(b"paDd", bytes(missing)) if missing >= 0 else b""
    return start + padding + end


def binary(seed: int, size_bytes: int) -> bytes:
    """Make bytes: a block of 64 KiB that the seed decides, again and again."""
    block = samples(seed, 0, _BLOCK_BYTES // 2)
    return (block * (size_bytes // _BLOCK_BYTES + 1))[:size_bytes]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
