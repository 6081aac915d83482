"""Lets the processes that an engine starts die with their worker, even if that is killed.

A library that starts processes calls `die_with_parent` in each of them: vLLM does, as one of its
general plugins.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["VARIABLE", "die_with_parent", "family"]

VARIABLE: Final = "STAGEMESH_DIE_WITH_PARENT"
"""Set in a worker's environment where its children should die with it: other users of vLLM on this
machine load the plugin too, and are left alone."""

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process once the thread that started it has ended.

    Raises:
        OSError: If the kernel refuses.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not os.environ.get(VARIABLE) or sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent.pid:  # It died before the kernel was asked.
        os.kill(os.getpid(), signal.SIGKILL)


def family(pid: int) -> Iterator[int]:
    """Yield a process and all processes below it; on Linux, else the process alone."""
    yield pid
    with suppress(OSError):  # It has ended meanwhile.
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in file.read_text().split():
                yield from family(int(child))
