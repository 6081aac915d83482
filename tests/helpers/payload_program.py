"""A process that holds payloads, prints their handles as JSON, and waits to be killed."""

import asyncio
import sys
from pathlib import Path

import msgspec

from stagemesh.ids import new_incarnation
from tests.helpers.payloads import MIB, noise, store_in


async def _main(directory: Path, holder_id: str) -> None:
    store = store_in(directory, holder_id=holder_id, incarnation=new_incarnation())
    handles = [store.put(noise(size), "req_1") for size in (100, 2 * MIB)]
    sys.stdout.buffer.write(msgspec.json.encode(handles) + b"\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
