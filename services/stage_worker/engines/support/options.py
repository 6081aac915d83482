"""Reads the `options` of a pool into an engine's own type; every mistake sounds the same."""

from typing import Annotated, Any, TypeVar

import msgspec

from services.stage_worker.engines.base import EngineConfig
from stagemesh.errors import BadSettings

__all__ = ["Count", "Positive", "read_options"]

Count = Annotated[int, msgspec.Meta(ge=1)]
"""A whole number, at least 1."""

Positive = Annotated[float, msgspec.Meta(gt=0)]
"""A number above 0."""

Options = TypeVar("Options", bound=msgspec.Struct)


def read_options(config: EngineConfig, kind: type[Options]) -> Options:
    """Check the options that the mesh file gives a pool, and turn them into `kind`.

    Raises:
        BadSettings: If a key is unknown or a value is of the wrong type or out of range; the
            message names the pool and the key.
    """
    given: dict[str, Any] = dict(config.options)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise BadSettings(f"pool {config.pool}: options: {_said(error)}") from error


def _said(error: msgspec.ValidationError) -> str:
    """Put the key first, which msgspec writes last and as a path."""
    what, _, where = str(error).partition(" - at `$.")
    return f"{where.rstrip('`')}: {what}" if where else what
