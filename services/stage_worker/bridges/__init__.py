"""Bridges, found by name: they turn a request and upstream outputs into a stage's input."""

from functools import lru_cache
from importlib.metadata import entry_points
from typing import Final

from services.stage_worker.bridges.base import BridgeFactory
from stagemesh.errors import unsupported

__all__ = ["BRIDGES_GROUP", "find_bridge"]

BRIDGES_GROUP: Final = "stagemesh.bridges"


@lru_cache(maxsize=64)
def find_bridge(name: str) -> BridgeFactory:
    """Load a bridge by its name; a name that was found once costs nothing after.

    Raises:
        MeshError: If no installed distribution has one of this name.
    """
    for entry in entry_points(group=BRIDGES_GROUP, name=name):
        factory: BridgeFactory = entry.load()
        return factory
    raise unsupported(f"no bridge is called {name!r}")
