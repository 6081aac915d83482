"""`condition`: tensors of other stages, those of companions under their names."""

from typing import ClassVar, Final

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed, SourceSpec
from services.stage_worker.bridges.request import last_user_text
from services.stage_worker.engines.base import EngineInput, TensorsInput
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["ConditionBridge", "create"]


class ConditionBridge:
    """Gives one `TensorsInput`, once every source has ended with one tensor each."""

    reads_media: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self._text = last_user_text(context.request)
        self._open = {source.lane for source in context.sources}
        self._buffers: dict[str, bytes] = {}
        self.complete = False
        names = [source.companion for source in context.sources]
        if not names or len(set(names)) != len(names):
            raise _misfit("a condition needs sources, at most one for itself and each companion")

    def start(self) -> list[EngineInput]:
        """Give nothing: the tensors are still to come."""
        return []

    def feed(self, fed: Fed) -> list[EngineInput]:
        """Take a tensor, or the end of a source."""
        if fed.body is not None:
            self._put(fed.source, fed.body.inline)
        if not fed.last:
            return []
        if fed.source.companion not in self._buffers:
            raise _misfit(f"stage {fed.source.stage} ended without a tensor")
        self._open.discard(fed.source.lane)
        if self._open:
            return []
        self.complete = True
        return [TensorsInput(buffers=self._buffers, text=self._text)]

    def _put(self, source: SourceSpec, tensor: bytes) -> None:
        if source.companion in self._buffers:
            raise _misfit(f"stage {source.stage} gave a second tensor")
        self._buffers[source.companion] = tensor


def _misfit(message: str) -> MeshError:
    return MeshError(error_for("protocol_error", message))


create: Final[BridgeFactory] = ConditionBridge
