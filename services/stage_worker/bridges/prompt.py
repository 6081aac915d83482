"""`prompt`: the text of the user's last message; for the companion `negative`, what to avoid."""

from typing import ClassVar, Final

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed
from services.stage_worker.bridges.request import last_user_text
from services.stage_worker.engines.base import EngineInput, TextInput
from stagemesh.errors import unsupported

__all__ = ["PromptBridge", "create"]

_NEGATIVE: Final = "negative"


class PromptBridge:
    """Gives one `TextInput`, which may be empty."""

    reads_media: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self.complete = False

    def start(self) -> list[EngineInput]:
        """Give the prompt of this role."""
        self.complete = True
        companion = self._context.companion
        if not companion:
            return [TextInput(text=last_user_text(self._context.request))]
        if companion == _NEGATIVE:
            return [TextInput(text=self._context.params.image.negative_prompt or "")]
        raise unsupported(f"there is no prompt for a companion called {companion!r}")

    def feed(self, fed: Fed) -> list[EngineInput]:
        """Take nothing: a prompt does not depend on other stages."""
        return []


create: Final[BridgeFactory] = PromptBridge
