"""A process that works on a store of requests until it is killed, or has nothing more to do."""

import asyncio
import sys
from itertools import count
from pathlib import Path

from services.gateway.core.detached import LanePosition, OwnerName
from services.gateway.store import RequestRow, SqliteStore

__all__ = ["LANE", "content_of", "row_of"]

LANE = 1
ROUNDS = 60


def row_of(request_id: str) -> RequestRow:
    """Give the row of a request that has just begun."""
    return RequestRow(
        request_id=request_id, tenant="t", epoch=1, owner=OwnerName("o", 1), owner_since=1,
        revision="r", deadline_at_s=1e12, detach_s=1.0,
    )  # fmt: skip


def content_of(number: int) -> bytes:
    """Give content of which a missing, doubled or torn piece shows, over some pages."""
    return b"%08d" % number * 2_000


async def _commit(store: SqliteStore) -> None:
    """Commit one piece after the other, and say so after each."""
    for number in count():
        assert await store.commit("req", 1, (LanePosition(LANE, number + 1),), content_of(number))
        sys.stdout.write(f"{number + 1}\n")
        sys.stdout.flush()


async def _race(store: SqliteStore) -> None:
    """Try to be the first to take each epoch; say which could be had."""
    for epoch in range(1, ROUNDS + 1):
        while (row := await store.read("req")) is None or row.epoch < epoch:
            pass
        taken = await store.take("req", epoch, OwnerName("o", 1), "r")
        if taken is not None:
            sys.stdout.write(f"{taken.epoch}\n")


async def _main(path: Path, what: str) -> None:
    store = await SqliteStore(path).open()
    await {"commit": _commit, "race": _race}[what](store)
    await store.close()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
