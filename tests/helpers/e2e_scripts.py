"""What tests ask of synthetic stages, and what these must then give, worked out a second time."""

import io
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from PIL import Image

__all__ = ["RATE_HZ", "UNIT_SAMPLES", "colour", "colour_of_png", "pcm", "script", "user", "words"]

RATE_HZ: Final = 24_000
UNIT_SAMPLES: Final = RATE_HZ * 20 // 1000
"""The audio of one unit is 20 ms, unless a script says how long all of it is."""

_STEP: Final = 2_654_435_761


def script(before: str = "", /, **keys: Any) -> str:
    """Write a user's text that ends with a script."""
    return f"{before}#synthetic {json.dumps(keys)}"


def user(before: str = "", /, **keys: Any) -> Any:
    """Make the messages of a chat whose only one is a script."""
    return [{"role": "user", "content": script(before, **keys)}]


def words(count: int, start: int = 0) -> str:
    """Give the text of tokens `[start, count)`."""
    return "".join(f" w{i}" for i in range(start, count))


def pcm(seed: int, count: int) -> bytes:
    """Give the first samples of a seed, each worked out by itself."""
    values = [((at + seed * 97) * _STEP % 2**32 >> 18) - 2**13 for at in range(count)]
    return np.array(values, dtype="<i2").tobytes()


def colour(seed: int, frame: int = 0) -> tuple[int, int, int]:
    """Give the colour of a seed's image, or of a frame of its video."""
    mixed = (seed + frame * 7 + 1) * _STEP % 2**32
    return mixed >> 24, mixed >> 16 & 0xFF, mixed >> 8 & 0xFF


def colour_of_png(data: bytes) -> tuple[tuple[int, int], Sequence[int]]:
    """Decode a PNG that must be of one colour; give its size and that colour."""
    image = Image.open(io.BytesIO(data))
    assert image.format == "PNG"
    colours = image.convert("RGB").getcolors(1)
    assert colours is not None, "more than one colour"
    found = colours[0][1]
    assert isinstance(found, tuple)
    return image.size, found
