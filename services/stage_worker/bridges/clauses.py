"""`clauses`: text as it comes, cut into clauses, so that speech can begin before the text ends."""

from typing import ClassVar, Final

import msgspec

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed
from services.stage_worker.bridges.cutter import Cutter
from services.stage_worker.bridges.request import last_user_text
from services.stage_worker.bridges.spans import Spans
from services.stage_worker.engines.base import EngineInput, TextInput
from stagemesh.errors import invalid, unsupported
from stagemesh.media import OutputKind

__all__ = ["ClausesBridge", "Options", "create"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a mesh file may set: the shortest clause, and the longest without punctuation."""

    chars_min: int = 12
    chars_max: int = 240

    def __post_init__(self) -> None:
        if not 0 < self.chars_min < self.chars_max:
            raise ValueError("chars_min must be above 0 and below chars_max")


class ClausesBridge:
    """Gives a `TextInput` for each clause, of the sources' text or else of the request's own.

    The `units` of a clause are those of the pieces that end in it; with one source it has an
    `origin` too. Reasoning and tool calls are not for ears, and a rest without a letter or a digit
    has no sound. The end of a segment ends a clause too.
    """

    reads_media: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        options = _options(context)
        self._cutter = Cutter(chars_min=options.chars_min, chars_max=options.chars_max)
        self._own_text = last_user_text(context.request) if not context.sources else None
        self._open = {source.lane for source in context.sources}
        self._alone = len(self._open) == 1
        self._spans = Spans()
        self.complete = False

    def start(self) -> list[EngineInput]:
        """Give the clauses of the request's own text, if the stage has no source."""
        text = self._own_text
        if text is None:
            return []
        if not text.strip():
            raise invalid(
                "there is no text to speak", param="input", reason="missing_required_parameter"
            )
        self._spans.add(len(text), 0, 0)
        return [*self._clauses(self._cutter.add(text)), *self._finish()]

    def feed(self, fed: Fed) -> list[EngineInput]:
        """Take a piece of text."""
        text = fed.text if fed.kind is OutputKind.TEXT else ""
        self._spans.add(len(text), fed.pos, fed.units)
        inputs = self._clauses(self._cutter.add(text))
        if fed.last:
            self._open.discard(fed.source.lane)
        if not self._open:
            return [*inputs, *self._finish()]
        return [*inputs, *self._rest()] if fed.segment_end else inputs

    def _finish(self) -> list[EngineInput]:
        self.complete = True
        return self._rest()

    def _rest(self) -> list[EngineInput]:
        rest = self._cutter.rest()
        return self._clauses([rest]) if any(map(str.isalnum, rest)) else []

    def _clauses(self, clauses: list[str]) -> list[EngineInput]:
        return [self._input(clause) for clause in clauses]

    def _input(self, clause: str) -> TextInput:
        units, span = self._spans.take(len(clause))
        return TextInput(text=clause, units=units, origin=span if self._alone else None)


def _options(context: Context) -> Options:
    try:
        return msgspec.convert(dict(context.options), Options)
    except msgspec.ValidationError as error:
        raise unsupported(f"options of the bridge clauses: {error}") from None


create: Final[BridgeFactory] = ClausesBridge
