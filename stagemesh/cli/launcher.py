"""Keeps the processes of a mesh running until it is told to stop; `supervision` decides how."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from asyncinotify import Inotify, Mask

from stagemesh.cli.logs import LogFile
from stagemesh.cli.plan import Plan, ProcessSpec, discovery_text, moved
from stagemesh.cli.ports import NoFreePorts, busy, free_ports
from stagemesh.cli.process import end_group, remove_remains, spawn, tell
from stagemesh.cli.progress import Progress, Row
from stagemesh.cli.readiness import Probes
from stagemesh.cli.run_folder import RunFolder
from stagemesh.cli.supervision import (
    Child,
    ChildState,
    Role,
    SupervisionPolicy,
    is_clean_exit,
    is_up,
    stop_orders,
)
from stagemesh.settings import split_address

__all__ = ["Launcher"]


@dataclass(slots=True)
class _Kept:
    """One process that is to run, with what is known of it."""

    spec: ProcessSpec
    child: Child
    log: LogFile
    detail: str = ""
    last_log: list[str] = field(default_factory=list)

    def row(self) -> Row:
        return Row(self.spec.id, self.child.state, self.detail)

    def record(self) -> dict[str, Any]:
        spec, child = self.spec, self.child
        record: dict[str, Any] = {
            "role": spec.role,
            "pid": child.pid or None,
            "address": spec.address,
            "pool": spec.pool or None,
            "replica_id": spec.id,
            "state": child.state,
        }
        if spec.admin_address:
            record["admin_address"] = spec.admin_address
        if child.state is ChildState.CRASH_LOOP:
            record["last_log"] = self.last_log
        return record


class Launcher:
    """One run of one mesh."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        progress: Progress,
        *,
        probes: Probes,
        announce: Callable[[], None],
        policy: SupervisionPolicy | None = None,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._probes = probes
        self._announce = announce
        policy = policy or SupervisionPolicy()
        self._kept = [
            _Kept(spec, Child(policy), LogFile(folder.logs / f"{spec.id}.log"))
            for spec in plan.processes
        ]
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._told: set[Role] = set()
        self._hurry = False
        self._ready = False
        self._clean = True
        self.died = False
        """Whether a process died that nobody had told to."""

    def stop(self) -> None:
        """Tell the mesh to stop; a second time, at once. May be called by a signal handler."""
        self._hurry = self._stopping.is_set()
        self._stopping.set()
        self._changed.set()

    async def run(self) -> int:
        """Run until `stop`; give 0 if every process ended as it should, else 1."""
        self._note()
        async with asyncio.TaskGroup() as tasks:
            for kept in self._kept:
                tasks.create_task(self._keep(kept), name=kept.spec.id)
            following = [
                tasks.create_task(self._announce_once(), name="announce"),
                tasks.create_task(self._follow_logs(), name="logs"),
            ]
            await self._stopping.wait()
            for task in following:
                task.cancel()
            self._progress.done()
            await self._shut_down()
        for kept in self._kept:
            remove_remains(kept.spec)
        return 0 if self._clean else 1

    async def _keep(self, kept: _Kept) -> None:
        """Start one process, again and again, until the mesh stops."""
        while not self._stopping.is_set():
            code = await self._live(kept)
            if self._stopping.is_set():
                self._left(kept, code)
                break
            await self._pause(self._mourn(kept, code))
        kept.child.stopped()
        self._note()

    async def _live(self, kept: _Kept) -> int:
        """Run one life of a process; give its exit code."""
        kept.log.begin()
        kept.detail = ""
        self._leave_taken_ports(kept)
        process = await spawn(kept.spec, kept.log.path)
        try:
            kept.child.started(process.pid)
            self._note()
            if kept.spec.role in self._told:
                self._tell(kept)
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch(kept))
                code = await process.wait()
                watching.cancel()
            return code
        finally:
            # Whatever it started must not outlive it, however it came to its end.
            end_group(process.pid)

    def _leave_taken_ports(self, kept: _Kept) -> None:
        """Give a process other ports, where somebody took its own since they were chosen.

        A port can still go between this and the moment when the process listens on it; then it dies
        at once, and its next life begins here again.
        """
        taken = [address for address in kept.spec.private if busy(*split_address(address))]
        if not taken:
            return
        promised = {
            split_address(address)[1]
            for other in self._kept
            for address in (other.spec.address, *other.spec.private)
        }
        with suppress(NoFreePorts):
            ports = free_ports(len(taken), besides=promised)
            others = {old: f"127.0.0.1:{port}" for old, port in zip(taken, ports, strict=True)}
            kept.spec = moved(kept.spec, others)
            self._folder.write("discovery.json", discovery_text(one.spec for one in self._kept))
            told = ", ".join(f"{old} is taken, it gets {new}" for old, new in others.items())
            self._progress.say(f"{kept.spec.id}: {told}")

    async def _watch(self, kept: _Kept) -> None:
        async with aclosing(self._probes.process(kept.spec)) as readiness:
            async for ready in readiness:
                before = kept.child.state
                kept.child.probed(ready, asyncio.get_running_loop().time())
                if kept.child.state is not before:
                    kept.detail = ""
                    self._note()
                    if self._ready and kept.child.state is ChildState.READY:
                        self._progress.say(f"{kept.spec.id} is ready again")

    def _mourn(self, kept: _Kept, code: int) -> float:
        """Tell of a death; give the seconds until the next life."""
        self.died = True
        kept.last_log = kept.log.last_lines()
        before = kept.child.state
        delay_s = kept.child.died(asyncio.get_running_loop().time())
        self._progress.say(f"{kept.spec.id} {_ending(code)}; again in {delay_s:.0f} s")
        looping = kept.child.state is ChildState.CRASH_LOOP
        if looping and before is not ChildState.CRASH_LOOP:
            quoted = "".join(f"\n    {line}" for line in kept.last_log)
            self._progress.say(f"{kept.spec.id} is in a crash-loop ({kept.log.path}):{quoted}")
        self._note()
        return delay_s

    def _left(self, kept: _Kept, code: int) -> None:
        """Judge how a process ended that had been told to."""
        if not is_clean_exit(code, was_ready=kept.child.was_ready):
            self._clean = False
            self._progress.say(f"{kept.spec.id} {_ending(code)} while the mesh stopped")

    async def _pause(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _announce_once(self) -> None:
        while not is_up(
            [(kept.spec.role, kept.spec.pool, kept.child.state) for kept in self._kept]
        ):
            await self._next_change(None)
        await self._probes.models(self._plan)
        self._ready = True
        self._note()
        self._progress.done()
        self._announce()

    async def _follow_logs(self) -> None:
        """Show what processes say while they load; returns once all is ready."""
        with Inotify() as inotify:
            inotify.add_watch(self._folder.logs, Mask.MODIFY)
            async for _ in inotify:
                if self._ready:
                    return
                for kept in self._kept:
                    if kept.child.state is ChildState.STARTING:
                        kept.detail = kept.log.progress() or kept.detail
                self._progress.show([kept.row() for kept in self._kept])

    async def _shut_down(self) -> None:
        """Tell the processes to go, kind by kind, until none is left."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while left := [kept for kept in self._kept if kept.child.state is not ChildState.STOPPED]:
            elapsed_s = loop.time() - began_s
            orders = stop_orders(elapsed_s, {kept.spec.role for kept in left}, self._told)
            self._told.update(orders.tell)
            kill = orders.kill or self._hurry
            for kept in left:
                if kept.spec.role in orders.tell:
                    self._tell(kept)
                if kill and kept.child.pid:
                    end_group(kept.child.pid)
            self._note()
            await self._next_change(None if kill else max(orders.next_s - elapsed_s, 0.0))

    def _tell(self, kept: _Kept) -> None:
        if kept.child.pid:
            kept.child.stopping()
            tell(kept.child.pid)

    async def _next_change(self, timeout_s: float | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _note(self) -> None:
        """Let everybody know of a change: who waits, who looks, and `status`."""
        self._changed.set()
        self._folder.write_state([kept.record() for kept in self._kept], ready=self._ready)
        if not self._ready and not self._stopping.is_set():
            self._progress.show([kept.row() for kept in self._kept])


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
