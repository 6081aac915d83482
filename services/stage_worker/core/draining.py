"""Taking the worker out by an operator's will, and in again; the process stays up."""

from collections.abc import Callable

from services.stage_worker.core.attempt import Attempt
from services.stage_worker.core.effects import ReportState, SendControlled
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.gate import Gate
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.table import AttemptTable
from stagemesh.control import Answer
from stagemesh.outcome import error_for

__all__ = ["Draining"]


class Draining:
    """Lets what runs end, or hands it back; `loses_nothing` tells what goes on elsewhere at once.

    The call is answered when no attempt is open any more, after `drain_s` at the latest.
    """

    def __init__(
        self,
        attempts: AttemptTable,
        endings: Endings,
        orders: Orders,
        gate: Gate,
        loses_nothing: Callable[[Attempt], bool],
    ) -> None:
        self._attempts = attempts
        self._endings = endings
        self._orders = orders
        self._gate = gate
        self._loses_nothing = loses_nothing
        self._asked: tuple[int, int] | None = None
        self._until_s: float | None = None

    @property
    def next_s(self) -> float | None:
        """When what is left is handed back."""
        return self._until_s

    def ask(self, link: int, control_id: int, until_s: float) -> None:
        """Take nothing new, and wait for what runs; a later call comes in an earlier one's place.

        The earlier of their ends holds.
        """
        self._take_place((link, control_id))
        self._until_s = until_s if self._until_s is None else min(until_s, self._until_s)
        self._become(drained=True)
        for attempt in self._attempts.spoken_of():
            if self._loses_nothing(attempt):
                self._endings.hand_back(attempt)

    def undo(self, link: int, control_id: int) -> None:
        """Take new attempts again."""
        self._take_place(None)
        self._until_s = None
        self._become(drained=False)
        self._answer((link, control_id), Answer())

    def settle(self) -> None:
        """Answer the call that waits, if nothing is left."""
        if self._until_s is None or self._attempts.open:
            return
        self._until_s = None
        if self._asked is not None:
            self._answer(self._asked, Answer())
            self._asked = None

    def late(self, now_s: float) -> None:
        """Hand back what is left, if its time is up."""
        if self._until_s is not None and self._until_s <= now_s:
            for attempt in self._attempts.spoken_of():
                self._endings.hand_back(attempt)

    def lose(self, link: int) -> None:
        """Note that nobody waits any more for an answer on a link."""
        if self._asked is not None and self._asked[0] == link:
            self._asked = None

    def _take_place(self, later: tuple[int, int] | None) -> None:
        before, self._asked = self._asked, later
        if before is not None:
            error = error_for("conflict", "A later call came in its place.")
            self._answer(before, Answer(error=error))

    def _become(self, *, drained: bool) -> None:
        if self._gate.value.drained != drained:
            self._gate.drain(drained=drained)
            self._orders.add(ReportState())

    def _answer(self, asked: tuple[int, int], answer: Answer) -> None:
        link, control_id = asked
        self._orders.add(SendControlled(link=link, control_id=control_id, answer=answer))
