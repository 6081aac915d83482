"""What keeps the tiers `unit` and `property` in memory does so."""

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable

import pytest


def connect() -> None:
    with socket.socket() as connection:
        connection.connect(("127.0.0.1", 9))


def listen() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))


def start() -> None:
    subprocess.run(["true"], check=True)


@pytest.mark.parametrize("leave", [connect, listen, start])
def test_a_test_cannot_leave_memory(leave: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="a test of this tier stays in memory"):
        leave()


async def test_a_test_may_let_others_run_but_not_wait() -> None:
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match=r"does not wait: asyncio\.sleep\(0\.01\)"):
        await asyncio.sleep(0.01)


def test_a_test_cannot_sleep() -> None:
    with pytest.raises(RuntimeError, match=r"does not wait: time\.sleep\(0\.001\)"):
        time.sleep(0.001)
