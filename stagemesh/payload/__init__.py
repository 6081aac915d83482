"""The payload plane: bytes that go from worker to worker, past every orchestrator's core."""

from stagemesh.payload.files import PAYLOAD_DIRECTORY, remove_dead
from stagemesh.payload.reader import PayloadReader
from stagemesh.payload.servicer import PayloadServicer
from stagemesh.payload.store import WARM_BYTES_MAX, PayloadStore

__all__ = [
    "PAYLOAD_DIRECTORY",
    "WARM_BYTES_MAX",
    "PayloadReader",
    "PayloadServicer",
    "PayloadStore",
    "remove_dead",
]
