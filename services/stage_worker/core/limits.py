"""The numbers that a worker decides by."""

import msgspec

from stagemesh.link.core import WINDOW_BYTES, WINDOW_UNITS

__all__ = ["Identity", "Limits"]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the worker is, for the errors that it gives."""

    pool: str
    replica_id: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and times; the input window is what each source of an attempt may send ahead."""

    input_window_units: int = WINDOW_UNITS
    input_window_bytes: int = WINDOW_BYTES
    outbox_bytes_max: int = 4 * 1024 * 1024
    """What one attempt may hold back for want of credit."""
    held_bytes_max: int = 256 * 1024 * 1024
    """What all attempts together may hold back; above it nothing new is taken."""
    attempts_max: int = 4096
    """How many attempts may be open, those included that only wait for credit."""
    stall_s: float = 30.0
    orphan_s: float = 2.0
    """How long an attempt goes on that nobody hears any more."""
    tombstones_max: int = 4096
    """How many slots are remembered for which an abort came first, or that were answered."""
    controls_max: int = 16
    """How many control calls may wait for the engine."""

    def __post_init__(self) -> None:
        if self.stall_s <= 0 or self.outbox_bytes_max <= 0 or self.input_window_units <= 0:
            raise ValueError("stall_s, outbox_bytes_max and input_window_units must be positive")
        if self.orphan_s < 0:
            raise ValueError("orphan_s must not be negative")
