"""Folders of weights on disk: made whole or not at all, and known by their digest."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["cache_root", "digest_of", "locked", "made_whole", "sweep"]

# What a model computes depends on these; pictures, cards and code beside them do not count.
_DIGESTED: Final = frozenset(
    {".bin", ".gguf", ".jinja", ".json", ".model", ".onnx", ".safetensors", ".txt"}
)
_BLOCK_BYTES: Final = 1 << 20


def cache_root() -> Path:
    """Return the folder for weights that this user's programs share."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "stagemesh" / "models"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes; the lock ends with the process at the latest."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """Give a folder to fill, which becomes `target` at the end, or vanishes if anything fails."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a process that died left half made; the caller holds the lock."""
    for draft in folder.glob(".*.draft"):
        shutil.rmtree(draft, ignore_errors=True)


def digest_of(path: Path, note: Path) -> str:
    """Return the SHA-256 of the weights at `path`, remembered in `note` until a file changes."""
    files = _weight_files(path)
    seen = [[name, file.stat().st_size, file.stat().st_mtime_ns] for name, file in files]
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_text())
        if known["files"] == seen:
            return str(known["digest"])
    digest = _hash(files)
    with suppress(OSError):  # A cache that cannot be written costs time only.
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = note.with_name(f".{note.name}.{os.getpid()}")
        draft.write_text(json.dumps({"digest": digest, "files": seen}))
        draft.replace(note)
    return digest


def _weight_files(path: Path) -> list[tuple[str, Path]]:
    if path.is_file():
        found = [file for file in path.parent.glob(f"{path.name}*") if file.is_file()]
        return sorted((file.name, file) for file in found)
    found = [file for file in path.rglob("*") if file.suffix in _DIGESTED and file.is_file()]
    return sorted((file.relative_to(path).as_posix(), file) for file in found)


def _hash(files: list[tuple[str, Path]]) -> str:
    whole = hashlib.sha256()
    for name, file in files:
        whole.update(f"{name}\0{file.stat().st_size}\n".encode())
        with file.open("rb") as data:
            while block := data.read(_BLOCK_BYTES):
                whole.update(block)
    return whole.hexdigest()
