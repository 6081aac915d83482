"""`script`: the text of the request, then what other stages gave, for the synthetic engine."""

import math
from typing import ClassVar, Final

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed
from services.stage_worker.bridges.request import last_user_text
from services.stage_worker.engines.base import EngineInput, TextInput
from stagemesh.link.core import REQUEST_SOURCE
from stagemesh.media import AUDIO_PCM, SAMPLE_BYTES, Body, Modality, split_lane

__all__ = ["FRAME_SAMPLES", "ScriptBridge", "create"]

FRAME_SAMPLES: Final = 480
"""Audio of another stage counts as one unit for each 20 ms at 24 kHz."""

_FRAMES_PER_S: Final = 50


class ScriptBridge:
    """Gives the request's text first, under no units, and then each upstream output as it comes.

    A stage that reads the client's input always gets that first input, also when it is empty. What
    the stage that the option `handover` names gives is waited for, and counts nothing.
    """

    reads_media: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self._request = context.request
        self._open = {source.lane for source in context.sources}
        handover = context.options.get("handover", "")
        self._handovers = {one.lane for one in context.sources if one.stage == handover}
        self._alone = len(self._open) == 1
        self.complete = False

    def start(self) -> list[EngineInput]:
        """Give the text of the request, if the stage reads it."""
        self.complete = not self._open
        if self._handovers or (not self._request.messages and self._open):
            return []
        return [TextInput(text=last_user_text(self._request))]

    def feed(self, fed: Fed) -> list[EngineInput]:
        """Pass an upstream output on."""
        lane = fed.source.lane
        if fed.last:
            self._open.discard(lane)
        if lane in self._handovers:
            if fed.last:
                self._handovers.discard(lane)
            return [] if self._handovers else self.start()
        self.complete = not self._open
        units = _units_of(fed)
        origin = (fed.pos, fed.pos + fed.units) if self._alone else None
        return [TextInput(text=fed.text, units=units, origin=origin)] if units else []


def _units_of(fed: Fed) -> int:
    """Tell for how many units of output an input is good."""
    if fed.source.lane == REQUEST_SOURCE:
        return _frames_in(fed.body) if fed.body is not None else int(bool(fed.text))
    if split_lane(fed.source.lane).modality is Modality.AUDIO:
        return math.ceil(fed.units / FRAME_SAMPLES)
    return fed.units


def _frames_in(body: Body) -> int:
    """Count a client's audio in steps of 20 ms; what is not raw counts as one."""
    if body.media_type != AUDIO_PCM or not body.sample_rate_hz:
        return 1
    samples = len(body.inline) // (SAMPLE_BYTES * body.channels)
    return math.ceil(samples * _FRAMES_PER_S / body.sample_rate_hz)


create: Final[BridgeFactory] = ScriptBridge
