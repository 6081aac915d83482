"""A process that reads payloads and keeps some of them mapped, looking at them again and again.

Each line of its input is an `Order`; for each it prints `read` or `lost`. It exits with 3 if it
ever sees a byte that is not of the payload that it asked for.
"""

import asyncio
import random
import sys

import msgspec
import numpy as np
from numpy.typing import NDArray

from stagemesh.errors import MeshError
from stagemesh.media import Handle
from stagemesh.payload import PayloadReader

__all__ = ["Order", "filled"]

_KEPT_MAX = 4


class Order(msgspec.Struct):
    """A handle to read, and the number that its bytes were filled with."""

    handle: Handle
    number: int


def filled(number: int, size_bytes: int) -> bytes:
    """Give bytes that no other number has at the same place."""
    return (number.to_bytes(8, "little") * (size_bytes // 8 + 1))[:size_bytes]


def _is_whole(array: NDArray[np.uint8], order: Order) -> bool:
    return array.tobytes() == filled(order.number, order.handle.size_bytes)


async def _main(seed: int) -> None:
    draw = random.Random(seed)
    kept: list[tuple[NDArray[np.uint8], Order]] = []
    async with PayloadReader() as reader:
        for line in sys.stdin.buffer:
            order = msgspec.json.decode(line, type=Order)
            try:
                view = await reader.get(order.handle)
            except MeshError:
                said = b"lost\n"
            else:
                said = b"read\n"
                kept.append((np.frombuffer(view, np.uint8), order))
                del view
            if not all(_is_whole(array, of) for array, of in kept):
                sys.exit(3)
            while len(kept) > draw.randint(0, _KEPT_MAX):
                kept.pop(draw.randrange(len(kept)))
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
