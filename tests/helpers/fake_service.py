"""A program that stands in for a service of the mesh, and does what a test tells it.

Run as a file: `fake_service.py NAME PORT`. It says `NAME PID` to the test's switchboard and then
obeys lines: `exit CODE`, `env NAME`, `fork` (answers with the pid of a child), `deaf` (ignores
SIGTERM), `load WORDS` (logs progress), `log WORDS`. On SIGTERM it says `term` and, once told `go`,
exits with 0.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from types import FrameType
from typing import Any


def main() -> None:
    name, port = sys.argv[1], int(sys.argv[2])
    line = socket.create_connection(("127.0.0.1", port))

    def say(words: str) -> None:
        line.sendall(f"{words}\n".encode())

    def terminated(_number: int, _frame: FrameType | None) -> None:
        say("term")

    signal.signal(signal.SIGTERM, terminated)
    say(f"{name} {os.getpid()}")
    for raw in line.makefile():
        words, _, rest = raw.strip().partition(" ")
        if words == "exit":
            os._exit(int(rest))
        elif words == "go":
            sys.exit(0)
        elif words == "fork":
            say(str(subprocess.Popen(["sleep", "600"]).pid))
        elif words == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say("deaf")
        elif words == "env":
            say(os.environ[rest])
        elif words == "log":
            log(event=rest)
        elif words == "load":
            log(event="loading", detail=rest)


def log(**record: Any) -> None:
    sys.stderr.write(f"{json.dumps(record)}\n")


if __name__ == "__main__":
    main()
