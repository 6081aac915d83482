"""Engines, found by name: each runs one kind of model behind the same small contract."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from services.stage_worker.engines.base import Engine, EngineConfig
from stagemesh.errors import BadSettings

__all__ = ["ENGINES_GROUP", "EngineFactory", "find_engine"]

ENGINES_GROUP: Final = "stagemesh.engines"

EngineFactory = Callable[[EngineConfig], Engine]


def find_engine(name: str) -> EngineFactory:
    """Load the factory of an engine by its name; only this imports what the engine needs.

    Raises:
        BadSettings: If no installed distribution has an engine of this name, or what the engine
            needs is not installed.
    """
    for entry in entry_points(group=ENGINES_GROUP, name=name):
        try:
            factory: EngineFactory = entry.load()
        except ImportError as error:
            raise BadSettings(f"engine {name} cannot be loaded: {error}") from error
        return factory
    raise BadSettings(f"no engine is called {name!r}")
