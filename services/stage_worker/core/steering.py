"""What operators do with this worker: its gate, the calls that move it, and being taken out."""

from collections.abc import Callable

from services.stage_worker.core.attempt import Attempt
from services.stage_worker.core.control import Controls
from services.stage_worker.core.draining import Draining
from services.stage_worker.core.effects import SendControlled
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.events import ControlAsked
from services.stage_worker.core.gate import Gate
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.refusals import ProcessState
from services.stage_worker.core.table import AttemptTable
from stagemesh.control import Answer, ControlSupport, Drain, Undrain
from stagemesh.control import Gate as GateValue
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["Steering"]


class Steering:
    """One gate, and everything that may close or open it."""

    def __init__(
        self,
        attempts: AttemptTable,
        endings: Endings,
        orders: Orders,
        *,
        calls_max: int,
        loses_nothing: Callable[[Attempt], bool],
    ) -> None:
        self._orders = orders
        self._gate = Gate()
        self._controls = Controls(attempts, endings, orders, self._gate, calls_max=calls_max)
        self._draining = Draining(attempts, endings, orders, self._gate, loses_nothing)

    @property
    def gate(self) -> GateValue:
        """What operators have closed."""
        return self._gate.value

    @property
    def state(self) -> ProcessState:
        """What that makes of a worker that could take attempts."""
        return self._gate.state

    @property
    def still(self) -> bool:
        """Whether the engine makes no step by an operator's will."""
        return self._controls.still

    @property
    def next_s(self) -> float | None:
        """When `late` has something to do."""
        times = (self._controls.next_s, self._draining.next_s)
        return min((time_s for time_s in times if time_s is not None), default=None)

    def loaded(self, support: ControlSupport) -> None:
        """Note what the engine carries out."""
        self._controls.loaded(support)

    def ask(self, event: ControlAsked, now_s: float, *, closed: str) -> None:
        """Take a call, or refuse it for the reason in `closed`."""
        link, control_id, call = event.link, event.control_id, event.call
        if closed:
            self.refuse(link, control_id, error_for(closed))
        elif isinstance(call, Drain):
            self._draining.ask(link, control_id, now_s + call.drain_s)
        elif isinstance(call, Undrain):
            self._draining.undo(link, control_id)
        else:
            self._controls.ask(link, control_id, call, now_s + event.timeout_s)

    def refuse(self, link: int, control_id: int, error: ErrorInfo) -> None:
        """Answer a call of which nothing comes."""
        answer = Answer(error=error)
        self._orders.add(SendControlled(link=link, control_id=control_id, answer=answer))

    def answered(self, number: int, answer: Answer) -> None:
        """Take what came of the call that the engine has."""
        self._controls.answered(number, answer)

    def settle(self) -> None:
        """Go on with what waits for attempts to end."""
        self._controls.settle()
        self._draining.settle()

    def late(self, now_s: float) -> None:
        """Do what is due."""
        self._controls.late(now_s)
        self._draining.late(now_s)

    def lose(self, link: int) -> None:
        """Note that nobody waits any more for answers on a link."""
        self._controls.lose(link)
        self._draining.lose(link)
