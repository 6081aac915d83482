"""What is done to the processes of a mesh, drawn by a seed, and when."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from tests.helpers.cut_lines import CutLine
from tests.helpers.e2e_mesh import E2eMesh

__all__ = ["KILLS_MAX", "Done", "Fault", "Kind", "Troublemaker", "draw_faults"]

KILLS_MAX = 2
"""Of one process: with more, its pauses between lives would outlast the run."""


class Kind(Enum):
    """What can be done to a process."""

    KILL = "kill"
    STOP = "stop"
    BREAK = "break"
    """Its links are reset."""
    SILENCE = "silence"
    """Its links deliver nothing for a while."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to do, so many seconds after the start."""

    at_s: float
    kind: Kind
    name: str
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """One thing that was done, by the clock of `time.monotonic`."""

    kind: Kind
    name: str
    begun_s: float
    ended_s: float


def draw_faults(
    seed: int, span_s: float, names: Sequence[str], cuttable: Sequence[str]
) -> list[Fault]:
    """Draw faults for a span; the same seed and names give the same faults."""
    rng = random.Random(seed)
    kills: Counter[str] = Counter()
    faults: list[Fault] = []
    at_s = rng.uniform(0.5, 1.5)
    while at_s < span_s:
        kind = rng.choice([Kind.KILL, Kind.KILL, Kind.STOP, Kind.BREAK, Kind.SILENCE])
        name = rng.choice(cuttable if kind in (Kind.BREAK, Kind.SILENCE) else names)
        lasts_s = rng.choice([rng.uniform(0.3, 3.0), rng.uniform(6.5, 9.0)])
        kills[name] += kind is Kind.KILL
        if kind is not Kind.KILL or kills[name] <= KILLS_MAX:
            momentary = kind in (Kind.KILL, Kind.BREAK)
            faults.append(Fault(at_s, kind, name, 0.0 if momentary else lasts_s))
        at_s += rng.uniform(0.6, 2.0)
    return faults


class Troublemaker:
    """Does what was drawn; `done` tells what could be done, for there may be nobody to kill."""

    def __init__(self, mesh: E2eMesh, lines: Mapping[str, CutLine]) -> None:
        self._mesh = mesh
        self._lines = lines
        self.done: list[Done] = []

    async def run(self, faults: Sequence[Fault]) -> None:
        """Do everything at its time, and put right what lasts; returns when all is over."""
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                await asyncio.sleep(max(0.0, begun_s + fault.at_s - time.monotonic()))
                tasks.create_task(self._do(fault))

    async def _do(self, fault: Fault) -> None:
        begun_s = time.monotonic()
        line = self._lines.get(fault.name)
        match fault.kind:
            case Kind.KILL:
                if (pid := self._pid(fault.name)) is None:
                    return
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            case Kind.STOP:
                await self._stop(fault)
            case Kind.BREAK:
                assert line is not None
                line.reset()
            case Kind.SILENCE:
                assert line is not None
                line.silence()
                await asyncio.sleep(fault.lasts_s)
                line.heal()
        self.done.append(Done(fault.kind, fault.name, begun_s, time.monotonic()))

    async def _stop(self, fault: Fault) -> None:
        if (pid := self._pid(fault.name)) is None:
            return
        try:
            # By its descriptor, so that a later process with its number is not meant.
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.lasts_s)
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            os.close(descriptor)

    def _pid(self, name: str) -> int | None:
        """Give the process that lives by this name now, if one does."""
        records = self._mesh.processes()
        pid: int | None = next(one["pid"] for one in records if one["replica_id"] == name)
        return pid
