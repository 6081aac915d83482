"""Starts one process of the mesh and ends it with everything that it started."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import stagemesh
from stagemesh.cli import tether
from stagemesh.cli.plan import ProcessSpec
from stagemesh.payload import PAYLOAD_DIRECTORY, remove_dead

__all__ = ["child_environment", "end_group", "remove_remains", "spawn", "tell"]

_CODE_ROOT: Final = Path(stagemesh.__file__).parents[1]
_TETHER: Final = str(Path(tether.__file__))


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Make an environment in which `services` is importable, from wherever we were started."""
    path = os.pathsep.join(filter(None, [str(_CODE_ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **extra}


async def spawn(spec: ProcessSpec, log: Path) -> asyncio.subprocess.Process:
    """Start a process in a group of its own, bound to our life, its output in its log.

    Must be called from the main thread: the kernel binds a child's life to the thread that made it.
    """
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            _TETHER,
            str(os.getpid()),
            *spec.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=child_environment(spec.env),
            process_group=0,
        )


def tell(pid: int) -> None:
    """Ask a process to come to its end."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def end_group(pid: int) -> None:
    """Kill a process and all that it started, as far as they stayed in its group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def remove_remains(spec: ProcessSpec) -> None:
    """Remove the payloads of a process that was killed and will not come back to do it itself."""
    directory = child_environment(spec.env).get("STAGEMESH_PAYLOAD_DIRECTORY", PAYLOAD_DIRECTORY)
    with suppress(OSError):
        remove_dead(Path(directory), spec.id)
