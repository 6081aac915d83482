"""Taking an orchestrator out and in again."""

import asyncio
from typing import Any

import pytest

from services.orchestrator.servicer import Draining
from stagemesh.errors import MeshError


class Shell:
    """A driver that drains when the test says so, and a presence."""

    def __init__(self) -> None:
        self.draining = False
        self.log: list[str] = []
        self.empty = asyncio.Event()

    async def drain(self, drain_s: float) -> None:
        """See `Driver`."""
        self.log.append(f"drain {drain_s:g}")
        await self.empty.wait()

    def undrain(self) -> None:
        """See `Driver`."""
        self.log.append("undrain")

    def told(self) -> None:
        """Note that everybody was told."""
        self.log.append(f"told {self.draining}")


def made() -> tuple[Shell, Draining]:
    shell: Any = Shell()
    return shell, Draining(shell, shell, shell.told)


async def test_everybody_is_told_and_the_call_returns_when_nothing_is_open() -> None:
    shell, draining = made()
    call = asyncio.create_task(draining.drain(5.0))
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.0)
    assert not call.done()
    assert shell.log == ["told True", "drain 5"]
    shell.empty.set()
    await call


async def test_undoing_it_ends_the_call() -> None:
    shell, draining = made()
    call = asyncio.create_task(draining.drain(5.0))
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.0)
    draining.undrain()
    await call
    assert shell.log == ["told True", "drain 5", "undrain", "told False"]


async def test_a_process_that_is_being_stopped_is_not_taken_in_again() -> None:
    shell, draining = made()
    shell.empty.set()
    await draining.stop(1.0)
    with pytest.raises(MeshError):
        draining.undrain()
    with pytest.raises(MeshError):
        await draining.drain(1.0)
    assert shell.draining
