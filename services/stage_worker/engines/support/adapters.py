"""The LoRA adapters that an engine knows, each under its name."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from services.stage_worker.engines.support.weights import WeightsError, locate
from stagemesh.control import Adapter, Answer, ListAdapters, LoadAdapter, UnloadAdapter
from stagemesh.errors import MeshError, invalid
from stagemesh.outcome import error_for

__all__ = ["ADAPTERS_MAX", "AdapterCall", "Adapters", "Loaded", "folder_of"]

ADAPTERS_MAX: Final = 256

AdapterCall = LoadAdapter | UnloadAdapter | ListAdapters


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter in one loading of it; `number` is never used for another."""

    number: int
    adapter: Adapter
    folder: Path


Act = Callable[[Loaded], Awaitable[object]]


class Adapters:
    """Names are never given to something else while they are in use.

    `load` and `unload` are what the engine itself does for each, if it has anything to do.
    """

    def __init__(self, load: Act | None = None, unload: Act | None = None) -> None:
        self._load, self._unload = load, unload
        self._loaded: dict[str, Loaded] = {}
        self._numbers = 0

    async def carry_out(self, call: AdapterCall) -> Answer:
        """Do what is asked; an adapter is known once the engine has it, and not a moment longer.

        Raises:
            MeshError: If it cannot be done.
        """
        match call:
            case LoadAdapter(adapter=adapter) if self.check(adapter):
                loaded = self.new(adapter, await asyncio.to_thread(folder_of, adapter))
                if self._load is not None:
                    await self._load(loaded)
                self.add(loaded)
            case UnloadAdapter(name=name):
                loaded = self.remove(name)
                if self._unload is not None:
                    await self._unload(loaded)
            case ListAdapters():
                return Answer(adapters=self.listed())
        return Answer()

    def check(self, adapter: Adapter) -> bool:
        """See whether an adapter may be loaded; False if it is.

        Raises:
            MeshError: If its name stands for another one, or there are too many.
        """
        known = self._loaded.get(adapter.name)
        if known is not None and known.adapter.path != adapter.path:
            message = f"{adapter.name!r} is loaded from another path; unload it first."
            raise MeshError(error_for("conflict", message, param="adapter.name"))
        if known is None and len(self._loaded) >= ADAPTERS_MAX:
            message = f"There may be at most {ADAPTERS_MAX} adapters."
            raise MeshError(error_for("conflict", message))
        return known is None

    def new(self, adapter: Adapter, folder: Path) -> Loaded:
        """Give a loading its number; `add` makes it known."""
        self._numbers += 1
        return Loaded(number=self._numbers, adapter=adapter, folder=folder)

    def add(self, loaded: Loaded) -> None:
        """Make an adapter known under its name."""
        self._loaded[loaded.adapter.name] = loaded

    def remove(self, name: str) -> Loaded:
        """Forget an adapter; what runs with it goes on with it.

        Raises:
            MeshError: If there is none of this name.
        """
        found = self.get(name, param="name")
        del self._loaded[name]
        return found

    def get(self, name: str, *, param: str = "adapter") -> Loaded:
        """Find an adapter.

        Raises:
            MeshError: If there is none of this name.
        """
        found = self._loaded.get(name)
        if found is None:
            raise MeshError(
                error_for("adapter_not_found", f"There is no adapter {name!r}.", param=param)
            )
        return found

    def listed(self) -> tuple[Adapter, ...]:
        """Give all of them, by name."""
        return tuple(self._loaded[name].adapter for name in sorted(self._loaded))


def folder_of(adapter: Adapter) -> Path:
    """Find an adapter's folder, which must lie below a configured root and hold safetensors only.

    Reads the disk: call it in a thread.

    Raises:
        MeshError: If it is no such folder.
    """
    try:
        return locate(adapter.path, "hf").path
    except WeightsError as error:
        raise invalid(str(error), param="adapter.path") from error
