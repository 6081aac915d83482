"""The part of a gateway that has detachable requests, as a process to be killed.

    python -m tests.helpers.detached_program open --discovery … --store … --request-id … \
        --model … --text …
    python -m tests.helpers.detached_program take --discovery … --store … --request-id …

It prints JSON lines: first `{"epoch", "contents"}`, with the lines that were committed before; then
`{"rows"}` for each batch that was committed here, which is also what is stored of it; and last
`{"terminal"}`, or `{"error"}` if this process has the request no more.
"""

import argparse
import asyncio
import base64
import hashlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from services.gateway.client import Detachable, Ended, Media
from stagemesh.errors import MeshError
from stagemesh.ids import new_incarnation
from stagemesh.link.core import Row
from stagemesh.media import Message, Modality, Request, TextPart
from stagemesh.outcome import ErrorInfo, Terminal
from stagemesh.payload import PayloadReader, PayloadStore
from tests.helpers.detaching_gateway import DetachingGateway, detaching_gateway


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("open", "take"))
    for flag in ("--discovery", "--store", "--request-id"):
        parser.add_argument(flag, required=True)
    for flag in ("--model", "--text"):
        parser.add_argument(flag, default="")
    parser.add_argument("--modality", action="append", choices=("text", "audio", "image", "video"))
    parser.add_argument("--detach-s", type=float, default=30.0)
    parser.add_argument("--deadline-s", type=float, default=60.0)
    parser.add_argument("--links", type=int, default=1, help="how many orchestrators to wait for")
    parser.add_argument("--pause-s", type=float, default=0.0, help="the consumer's, after a batch")
    parser.add_argument("--pieces", type=int, default=0, help="of input that is said at once")
    parser.add_argument("--data", action="store_true", help="print bytes, beside their digest")
    return parser


def _request(given: argparse.Namespace) -> Request:
    modalities = tuple(Modality[name.upper()] for name in given.modality or ("text",))
    said = Message(role="user", parts=(TextPart(text=given.text),))
    return Request(model=given.model, messages=(said,), modalities=modalities)


def _told(row: Row, *, data: bool) -> dict[str, Any]:
    """Tell all of a row."""
    told: dict[str, Any] = {"lane": row.lane, "pos": row.pos, "units": row.units}
    if row.body is not None:
        inline = row.body.inline
        told |= {"bytes": len(inline), "digest": hashlib.sha256(inline).hexdigest()}
        if data:
            told["data"] = base64.b64encode(inline).decode()
    else:
        told["text"] = row.text
    if row.end is not None:
        told["end"] = row.end.finish_reason.name
    return told


def _ended(terminal: Terminal) -> dict[str, Any]:
    return {"terminal": terminal.outcome.name} | _why(terminal.error)


def _why(info: ErrorInfo | None) -> dict[str, Any]:
    return {} if info is None else {"reason": info.reason, "message": info.message}


def _say(line: dict[str, Any] | bytes) -> None:
    """Print a line, so that it is out if this process is killed next."""
    encoded = line if isinstance(line, bytes) else msgspec.json.encode(line)
    sys.stdout.buffer.write(encoded + b"\n")
    sys.stdout.buffer.flush()


async def _begin(gateway: DetachingGateway, given: argparse.Namespace) -> Detachable | Ended:
    def keep(rows: list[Row]) -> bytes:
        return msgspec.json.encode({"rows": [_told(row, data=given.data) for row in rows]})

    if given.what == "take":
        return await gateway.detachables.take_over(
            given.request_id, tenant=_request(given).tenant, keep=keep
        )
    opened = await gateway.detachables.open(
        _request(given), request_id=given.request_id, detach_s=given.detach_s, keep=keep,
        deadline_s=given.deadline_s, streamed=given.pieces > 0,
    )  # fmt: skip
    if opened.input is not None:
        for at in range(given.pieces):
            await opened.input.room()
            opened.input.append(f" w{at}")
        opened.input.close()
    return opened


async def _follow(gateway: DetachingGateway, given: argparse.Namespace) -> None:
    found = await _begin(gateway, given)
    before = [msgspec.json.decode(content) for content in found.contents]
    if isinstance(found, Ended):
        _say({"epoch": 0, "contents": before})
        _say(_ended(found.terminal))
        return
    _say({"epoch": found.epoch, "contents": before})
    terminal = None
    while terminal is None:
        taken = await found.take()
        terminal = taken.terminal
        if taken.rows:
            _say({"rows": [_told(row, data=given.data) for row in taken.rows]})
            await asyncio.sleep(given.pause_s)
    _say(_ended(terminal))


async def _main(given: argparse.Namespace) -> None:
    with TemporaryDirectory() as folder:
        store = PayloadStore(
            holder_id=f"detached-{os.getpid()}", incarnation=new_incarnation(),
            address="127.0.0.1:1", directory=Path(folder), bytes_max=1 << 24, lease_s=60.0,
        )  # fmt: skip
        async with (
            PayloadReader(insecure=True) as reader,
            detaching_gateway(
                Path(given.store), given.discovery, links=given.links,
                media=Media(store, reader, fetch_s=30.0, lease_s=60.0), name=f"g-{os.getpid()}",
            ) as gateway,
        ):  # fmt: skip
            try:
                await _follow(gateway, given)
            except MeshError as error:
                _say({"error": error.info.reason, "message": error.info.message})
            await gateway.stop()
        store.close()


if __name__ == "__main__":
    asyncio.run(_main(_parser().parse_args()))
