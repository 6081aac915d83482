"""Other prompts for attempts that run: each harms nothing but itself, and is answered once.

Those of an attempt that ends first go with it: who asked hears of that end.
"""

from typing import Final

from services.stage_worker.core.attempt import Attempt, State
from services.stage_worker.core.effects import InteractEngine, SendInteracted
from services.stage_worker.core.events import InteractAsked, Interacted
from services.stage_worker.core.orders import Orders
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["Interactions"]

WAITING_MAX: Final = 64
"""How many may wait for their attempt to begin."""


class Interactions:
    """Gives prompts to the engine; those that come before their attempt has begun wait for that."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    def asked(self, attempt: Attempt, event: InteractAsked) -> None:
        """Take a prompt for an attempt that its orchestrator still waits for."""
        if attempt.state is State.RUNNING:
            self._give(attempt, event)
        elif attempt.state is not State.WAITING:
            self._refuse(attempt, event, error_for("conflict", "The attempt is over."))
        elif len(attempt.prompts) >= WAITING_MAX:
            self._refuse(attempt, event, error_for("queue_full", "Too many prompts wait."))
        else:
            attempt.prompts.append(event)

    def started(self, attempt: Attempt) -> None:
        """Give the engine what waited."""
        prompts, attempt.prompts = attempt.prompts, []
        for event in prompts:
            self._give(attempt, event)

    def answered(self, attempt: Attempt, event: Interacted) -> None:
        """Pass on what came of a prompt."""
        self._say(attempt, event.interaction_id, event.applied_at, event.error)

    def _give(self, attempt: Attempt, event: InteractAsked) -> None:
        self._orders.add(
            InteractEngine(
                attempt=attempt.number, interaction_id=event.interaction_id, text=event.text
            )
        )

    def _refuse(self, attempt: Attempt, event: InteractAsked, error: ErrorInfo) -> None:
        self._say(attempt, event.interaction_id, 0, error)

    def _say(
        self, attempt: Attempt, interaction_id: str, applied_at: int, error: ErrorInfo | None
    ) -> None:
        self._orders.add(
            SendInteracted(
                link=attempt.link,
                slot=attempt.slot,
                interaction_id=interaction_id,
                applied_at=applied_at,
                error=error,
            )
        )
