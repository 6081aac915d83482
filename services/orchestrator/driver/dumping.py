"""Writes the core's last inputs down when it failed, or when an operator asks for them."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.core.views import ReplicaView
from services.orchestrator.driver.dumps import Dump, write_dump
from services.orchestrator.driver.recorder import Recorder, Recording

__all__ = ["Dumper", "Shown"]

_log = logging.getLogger(__name__)


class Shown(Protocol):
    """A core, as a dump shows it to people."""

    def replica_views(self) -> Iterable[ReplicaView]:
        """Show the replicas that have a link."""
        ...

    def footprint(self) -> dict[str, int]:
        """Tell how much it keeps, by kind."""
        ...


class Dumper:
    """Knows where dumps go. For each cause, a failure or a wish, the last one is kept."""

    def __init__(
        self,
        recorder: Recorder,
        core: Shown,
        *,
        directory: str,
        orchestrator_id: str,
        incarnation: int,
        settings: CoreSettings,
        revisions: Mapping[str, str],
    ) -> None:
        self._recorder = recorder
        self._core = core
        self._directory = directory
        self._orchestrator_id = orchestrator_id
        self._incarnation = incarnation
        self._settings = settings
        self._revisions = dict(revisions)
        self._writing: asyncio.Future[None] | None = None

    def write(self, reason: str) -> None:
        """Write a dump now: the core has failed, and nothing goes on meanwhile."""
        if not self._directory:
            return
        try:
            self._write("failed", reason, *self._gathered())
        except Exception:  # Whatever a broken core shows must not hide what broke it.
            _log.exception("dump_failed")

    def write_aside(self) -> None:
        """Write a dump that was asked for in a thread, unless one is being written."""
        if not self._directory:
            _log.warning("dump_refused", extra={"reason": "no dump_directory is set"})
            return
        if self._writing is not None and not self._writing.done():
            return
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write, "asked", "asked", *self._gathered())

    async def written(self) -> None:
        """Wait for the dump that is being written in a thread, if one is."""
        if self._writing is not None:
            await self._writing

    def _gathered(self) -> tuple[Recording, tuple[ReplicaView, ...], dict[str, int]]:
        """Take what must be read between two steps of the core."""
        return self._recorder.kept(), tuple(self._core.replica_views()), self._core.footprint()

    def _write(
        self,
        name: str,
        reason: str,
        recording: Recording,
        replicas: tuple[ReplicaView, ...],
        footprint: dict[str, int],
    ) -> None:
        path = Path(self._directory) / f"{self._orchestrator_id}-{name}.dump"
        begun_s = time.perf_counter()
        try:
            dump = Dump(
                orchestrator_id=self._orchestrator_id,
                incarnation=self._incarnation,
                reason=reason,
                settings=self._settings,
                revisions=self._revisions,
                skipped=recording.skipped,
                standing=recording.standing(),
                steps=recording.steps(),
                replicas=replicas,
                footprint=footprint,
            )
            write_dump(dump, path)
        except OSError as error:
            _log.error("dump_failed", extra={"path": str(path), "reason": str(error)})
            return
        except Exception:  # In a thread nobody would hear of it.
            _log.exception("dump_failed", extra={"path": str(path)})
            return
        took_s = round(time.perf_counter() - begun_s, 3)
        _log.warning(
            "dump_written", extra={"path": str(path), "steps": len(dump.steps), "took_s": took_s}
        )
