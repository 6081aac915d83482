"""Programs under measurement: started, waited for, their CPU read over whole trees, stopped."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import psutil

__all__ = ["cpu_s", "free_port", "program", "tree_cpu_s", "wait_http"]

STOP_S = 30.0


@contextlib.contextmanager
def program(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
    """Run a program, with its output in a file, for as long as the block lasts."""
    with log.open("wb") as sink:
        child = subprocess.Popen(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    try:
        yield psutil.Process(child.pid)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def wait_http(url: str, within_s: float) -> None:
    """Wait until a GET answers 200.

    Raises:
        TimeoutError: If it does not in time.
    """
    limit_s = time.monotonic() + within_s
    while time.monotonic() < limit_s:
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(url, timeout=2) as answer,
        ):
            if answer.status == HTTPStatus.OK:
                return
        time.sleep(0.2)
    raise TimeoutError(f"{url} did not answer within {within_s} s")


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of one process, children not counted: the scheduler's nanoseconds of its threads.

    Threads that ended are not counted; the services and vLLM's server keep theirs.
    """
    total_ns = 0
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def tree_cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and everything below it that is alive."""
    total = cpu_s(process)
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += cpu_s(child)
    return total


def free_port(low: int = 21000) -> int:
    """Find a free loopback port below the range that the kernel gives to clients."""
    for port in range(low + os.getpid() % 3000, 32000):
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            return port
    raise RuntimeError("no free port below 32000")
