"""Becomes another program that dies when its launcher does, even by `kill -9`.

Run as a file, not imported: `python -I -S tether.py LAUNCHER_PID PROGRAM ARGUMENT…`. The kernel
keeps the death signal over `exec`, so that the program itself needs to know nothing of this.
(Setting it between fork and exec would run Python in a copy of a process that has threads.)
"""

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, make sure that the launcher still lives, and become the program."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)  # It died before the signal was asked for.
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
