"""The payload plane against `memcpy`: 64 MiB put by one process and read by another, same host.

A payload is new memory each time, so its budget is a copy to new memory; a copy between two warm
buffers, which pays for no page, is shown beside it.
"""

import argparse
import asyncio
import os
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from stagemesh.ids import new_incarnation, new_request_id
from stagemesh.media import Handle
from stagemesh.payload import PayloadReader, PayloadStore
from tests.perf.results import Row, median, print_rows

SIZE_BYTES = 64 * 1024 * 1024
BUDGET = 0.5


def main() -> None:
    """Measure in turns and print the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    runs = 3 if parser.parse_args().quick else 9
    data = np.frombuffer(os.urandom(SIZE_BYTES), np.uint8)
    target = np.zeros_like(data)  # Its pages exist already, unlike those of a new payload.
    copies, fresh_copies, moves = [], [], []
    context = get_context("spawn")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        store = PayloadStore(
            holder_id="bench",
            incarnation=new_incarnation(),
            address="127.0.0.1:1",
            directory=Path(folder),
            bytes_max=4 * SIZE_BYTES,
            lease_s=60.0,
        )
        ours, theirs = context.Pipe()
        reader = context.Process(target=_serve, args=(theirs,))
        reader.start()
        try:
            for _ in range(runs + 1):
                started_s = time.perf_counter()
                np.copyto(target, data)
                copies.append(time.perf_counter() - started_s)
                started_s = time.perf_counter()
                np.copyto(np.empty_like(data), data)
                fresh_copies.append(time.perf_counter() - started_s)
                request_id = new_request_id()
                started_s = time.perf_counter()
                ours.send(store.put(data.data, request_id))
                checksum = ours.recv()
                moves.append(time.perf_counter() - started_s)
                if checksum != int(data[:: 1 << 12].sum()):
                    raise RuntimeError("the bytes that came are not the bytes that went")
                store.release(request_id)
        finally:
            ours.send(None)
            reader.join(10)
            store.close()
    _print(copies, fresh_copies, moves)


def _print(copies: list[float], fresh_copies: list[float], moves: list[float]) -> None:
    warm_s, fresh_s, move_s = median(copies[1:]), median(fresh_copies[1:]), median(moves[1:])
    print_rows(
        [
            Row(
                name="payload plane against memcpy to new memory, 64 MiB, put and get",
                value=fresh_s / move_s,
                unit="x",
                budget=">= 0.5 x",
                met=fresh_s / move_s >= BUDGET,
                runs=[fresh_copies, moves],
            ),
            Row(
                name="payload plane against memcpy to new memory, 64 MiB, first put and get",
                # The reader has the payload before it in use, so that no file is free. (With the
                # very first one it starts.)
                value=fresh_s / moves[1],
                unit="x",
                runs=[fresh_copies, moves[1:2]],
            ),
            Row(
                name="payload plane against memcpy between warm buffers, 64 MiB",
                value=warm_s / move_s,
                unit="x",
                runs=[copies, moves],
            ),
        ]
    )


def _serve(pipe: Connection) -> None:
    async def serve() -> None:
        reader = PayloadReader()
        while (handle := await asyncio.to_thread(pipe.recv)) is not None:
            assert isinstance(handle, Handle)
            got = np.frombuffer(await reader.get(handle), np.uint8)
            pipe.send(int(got[:: 1 << 12].sum()))

    asyncio.run(serve())


if __name__ == "__main__":
    main()
