"""A dump: the last inputs of a core, as a file that a new core can be fed with."""

from pathlib import Path
from typing import Final

import msgspec

from services.orchestrator.core.events import Event
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.core.views import ReplicaView

__all__ = ["VERSION", "BadDump", "Dump", "Ended", "Step", "Submitted", "read_dump", "write_dump"]

VERSION: Final = 1
"""Of the form; a reader takes its own and no other."""


class BadDump(ValueError):
    """A file is no dump, or one of another version."""


class Submitted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt that a step submitted, and the slot that it got."""

    link: int
    slot: int
    request_id: str
    epoch: int
    attempt: int
    stage: int
    role: int


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that a step ended for its client, and its outcome's number."""

    request_id: str
    outcome: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One input, and what came of it: the kinds of the effects, or None where the core raised."""

    now_s: float
    event: Event
    effects: tuple[str, ...] | None = None
    submitted: tuple[Submitted, ...] = ()
    ended: tuple[Ended, ...] = ()


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """The last inputs of one core, without content.

    Where `skipped` is not 0, the core had taken so many before; `standing` are those of them that
    say who is linked.
    """

    version: int = VERSION
    orchestrator_id: str
    incarnation: int
    reason: str
    settings: CoreSettings
    revisions: dict[str, str]
    """The hash of each pipeline of the mesh, by its name."""
    skipped: int
    standing: tuple[Step, ...]
    steps: tuple[Step, ...]
    replicas: tuple[ReplicaView, ...] = ()
    """As they stood afterwards, for people."""
    footprint: dict[str, int] = {}
    """What the core kept afterwards, by kind."""


class _Head(msgspec.Struct):
    version: int


def write_dump(dump: Dump, path: Path) -> None:
    """Write a dump, so that a reader sees all of it or nothing.

    Raises:
        OSError: If the folder cannot be written.
    """
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(msgspec.msgpack.encode(dump))
    draft.chmod(0o600)
    draft.replace(path)


def read_dump(path: Path) -> Dump:
    """Read a dump.

    Raises:
        BadDump: If it is none, or one of another version.
        OSError: If the file cannot be read.
    """
    data = path.read_bytes()
    try:
        head = msgspec.msgpack.decode(data, type=_Head)
        if head.version != VERSION:
            raise BadDump(f"{path}: a dump of version {head.version}, not {VERSION}")
        return msgspec.msgpack.decode(data, type=Dump)
    except msgspec.MsgspecError as error:
        raise BadDump(f"{path}: {error}") from error
