"""Endpoints from a file that somebody replaces."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from asyncinotify import Inotify, Mask

from stagemesh.discovery.endpoints import Endpoint, Groups, parse_groups
from stagemesh.errors import BadSettings
from stagemesh.telemetry import metrics

__all__ = ["FileSource"]

_CHANGES: Final = Mask.CLOSE_WRITE | Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
_GONE: Final = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT
# A notification can be lost (a remote file system, a full queue), so the file is read again anyway.
_REREAD_S: Final = 10.0

_resolutions: Final = metrics.counter(
    "discovery_resolutions", "Readings of a discovery source, by what came of them.", ["result"]
)


class FileSource:
    """Watches the folder of one JSON file, so that replacing the file or a link to it is seen.

    One reader serves all watches. It starts with the first of them and ends with the last.
    """

    def __init__(self, path: Path) -> None:
        """Take the file, which need not be there yet.

        Raises:
            BadSettings: If its folder is not there.
        """
        if not path.parent.is_dir():
            raise BadSettings(f"discovery: {path.parent} is not a folder")
        self._path = path
        self._groups: dict[str, tuple[Endpoint, ...]] = {}
        self._version: tuple[int, ...] | None = None
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._watches = 0

    async def watch(self, group: str) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """Yield the endpoints of a group; see `Source`.

        Raises:
            OSError: If the folder cannot be watched any more.
        """
        await self._enter()
        told: tuple[Endpoint, ...] = ()
        try:
            while True:
                changed, endpoints = self._changed, self._groups.get(group, ())
                if endpoints != told:
                    told = endpoints
                    yield endpoints
                elif self._reader and self._reader.done():
                    self._reader.result()
                else:
                    await changed.wait()
        finally:
            await self._leave()

    async def _enter(self) -> None:
        self._watches += 1
        if self._reader is None:
            self._reader = asyncio.create_task(self._keep_reading(), name="discovery-file")
            self._reader.add_done_callback(lambda _: self._stir())
            # One turn of the loop sets the watch up, so that no change falls between it and this.
            await asyncio.sleep(0)
            self._read()

    async def _leave(self) -> None:
        self._watches -= 1
        if self._watches == 0 and self._reader is not None:
            reader, self._reader = self._reader, None
            reader.cancel()
            await asyncio.wait([reader])

    async def _keep_reading(self) -> None:
        with Inotify() as inotify:
            inotify.add_watch(self._path.parent, _CHANGES | _GONE)
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REREAD_S):
                        event = await inotify.get()
                        if event.mask & _GONE:
                            raise OSError(f"{self._path.parent} cannot be watched any more")
                self._read()

    def _read(self) -> None:
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version == self._version:
                return  # One replacement is several notifications.
            self._version = version
            groups = parse_groups(self._path.read_bytes())
        except (OSError, ValueError):
            _resolutions.labels("failed").inc()
            return
        if self._take(groups):
            self._stir()

    def _take(self, groups: Groups) -> bool:
        changed = False
        for name in self._groups.keys() | groups.keys():
            endpoints = tuple(sorted(groups.get(name, ()), key=lambda endpoint: endpoint.id))
            if not endpoints:
                _resolutions.labels("empty").inc()
            elif endpoints != self._groups.get(name):
                _resolutions.labels("changed").inc()
                self._groups[name] = endpoints
                changed = True
        return changed

    def _stir(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
