"""Lanes: one ordered flow of outputs, named by a number that every link uses."""

from enum import IntEnum
from typing import NamedTuple

__all__ = ["Lane", "Modality", "OutputKind", "lane_of", "split_lane"]


class Modality(IntEnum):
    """What kind of thing a lane carries: the same numbers as in `media.proto`."""

    TEXT = 1
    AUDIO = 2
    IMAGE = 3
    VIDEO = 4
    TENSOR = 5


class OutputKind(IntEnum):
    """What a piece of text is: the same numbers as in `link.proto`."""

    TEXT = 0
    REASONING = 1
    TOOL_CALL = 2
    IDS = 3


class Lane(NamedTuple):
    """The three parts of a lane number."""

    stage: int
    role: int
    modality: Modality


STAGES_MAX = 1 << 12
ROLES_MAX = 1 << 16


def lane_of(stage: int, role: int, modality: Modality) -> int:
    """Pack a lane number: `stage << 20 | role << 4 | modality`.

    Raises:
        ValueError: If the stage or the role does not fit.
    """
    if not (0 <= stage < STAGES_MAX and 0 <= role < ROLES_MAX):
        raise ValueError(f"no lane for stage {stage}, role {role}")
    return stage << 20 | role << 4 | modality


def split_lane(lane: int) -> Lane:
    """Unpack a lane number."""
    return Lane(lane >> 20, lane >> 4 & 0xFFFF, Modality(lane & 0xF))
