"""The core's limits and timers."""

import msgspec

from stagemesh.link.core import WINDOW_BYTES, WINDOW_UNITS

__all__ = ["CoreSettings", "DoorLimits"]

_MIB = 1024 * 1024


class DoorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the door lets in, whatever the model."""

    messages_max: int = 4096
    text_chars_max: int = 4 * _MIB
    word_chars_max: int = 256
    """For names that a client makes up: a voice, a language, a label."""
    choices_max: int = 16
    stops_max: int = 4
    stop_chars_max: int = 1024
    image_side_min: int = 16
    image_side_max: int = 4096
    image_pixels_max: int = 2048 * 2048
    image_steps_max: int = 200


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that bounds the core, in time and in space."""

    orchestrators: int = 1
    """How many orchestrators share the mesh file's limits."""
    door: DoorLimits = DoorLimits()
    window_units: int = WINDOW_UNITS
    window_bytes: int = WINDOW_BYTES
    """What a worker may send of an attempt, and a client of its streamed input, at first: as this
    orchestrator's Hello tells it."""
    journal_bytes_max: int = 4 * _MIB
    input_log_bytes_max: int = 16 * _MIB
    """What is kept of one client's streamed input, for stages that begin later or once more."""
    tombstones_max: int = 100_000
    refusals_max: int = 10_000
    """How many aborts by ids that nobody knows are remembered."""
    recent_max: int = 1_000
    """How many ended requests can still be looked up."""
    retry_after_s: float = 1.0
    abort_ack_s: float = 1.0
    usage_wait_s: float = 1.0
    orphan_s: float = 2.0
    """How long the attempts of a request go on whose gateway is lost."""
    redrive_s: float = 10.0
    redrive_share: float = 0.2
    redrive_burst: int = 50
    """The retry budget of a pool; see `RetryBudget`."""
    attempts_max: int = 4
    """How often a stage of a request is given to a replica under one epoch."""
    back_off_s: float = 0.05
    back_off_s_max: float = 1.0
    slow_s: float = 30.0
    stall_s: float = 30.0
    tombstone_s: float = 30.0
    lease_s: float = 60.0
    control_s: float = 30.0
    """How long a control call may take where its caller does not say."""
    controls_max: int = 64
    """How many control calls may be open at once."""
    release_grace_s: float = 10.0
    """How long a client may still fetch what a completed request gave it by handle."""

    def __post_init__(self) -> None:
        """Check that every number is above zero.

        Raises:
            ValueError: If one is not.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, DoorLimits) and not value > 0:
                raise ValueError(f"{name} must be above zero, not {value}")
