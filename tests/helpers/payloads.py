"""Payload stores for tests."""

from pathlib import Path
from typing import Any

from stagemesh.media import Handle
from stagemesh.payload import PayloadStore
from stagemesh.payload.files import data_path

__all__ = ["MIB", "inode_of", "noise", "store_in"]

MIB = 1024 * 1024


def store_in(directory: Path, **changes: Any) -> PayloadStore:
    """Open a store with room for 16 MiB and leases of 60 s."""
    options: dict[str, Any] = {
        "holder_id": "talker-0",
        "incarnation": 0x1234,
        "address": "127.0.0.1:1",
        "directory": directory,
        "bytes_max": 16 * MIB,
        "lease_s": 60.0,
    }
    return PayloadStore(**options | changes)


def inode_of(handle: Handle) -> int:
    """Tell which file of this host holds a payload."""
    path = data_path(handle.probe, handle.handle_id)
    assert path is not None
    return path.stat().st_ino


def noise(size_bytes: int) -> bytes:
    """Give bytes in which a swapped, lost or doubled chunk shows."""
    step = 65_521
    blocks = [index.to_bytes(8, "big") for index in range(size_bytes // 8 + 1)]
    return b"".join(blocks)[:size_bytes].translate(bytes((i * step) % 256 for i in range(256)))
