"""The driver: every event of the process goes through here, one at a time.

All of it runs on one event loop and a step never awaits, so an event is stepped in the callback
that brought it: no queue, no task switch and no lock per message. What the driver adds is order:
effects are performed after their step and before the next one, also when performing one brings
another event.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from services.orchestrator.core.effects import Effect, PublishModels
from services.orchestrator.core.events import DrainAsked, Event, Tick, UndrainAsked
from services.orchestrator.driver.recorder import Recorder

__all__ = ["DRAIN_SLACK_S", "Core", "Driver", "Observer", "Outlet"]

EVENTS_PENDING_MAX: Final = 10_000
"""How many events may wait while effects are performed; effects bring few, so more is a bug."""

DRAIN_SLACK_S: Final = 2.0
"""What a core, this one or a worker's, may need after `drain_s` to hear of what it aborted."""

_log = logging.getLogger(__name__)


class Core(Protocol):
    """What the driver needs of the core."""

    def step(self, event: Event, now_s: float) -> list[Effect]:
        """Take one event and give the effects that follow from it."""
        ...

    @property
    def next_wakeup_s(self) -> float | None:
        """When it wants a `Tick`, on the clock of `now_s`; None while it waits for nothing."""
        ...

    @property
    def requests_open(self) -> int:
        """How many requests have no terminal yet."""
        ...


class Outlet(Protocol):
    """One link, as the driver sees it. Performing an effect never awaits."""

    def perform(self, effect: Effect) -> None:
        """Do what an effect for this link orders."""
        ...


class Observer(Protocol):
    """Hears of every step, after its effects were performed."""

    def stepped(self, event: Event, effects: list[Effect], now_s: float, took_s: float) -> None:
        """Take note of a step that took the core `took_s` seconds."""
        ...


class Driver:
    """Owns the core.

    `failed` is called once with what a step or an effect raised; from then on the driver does
    nothing more, since a core that raised is in no state that anybody knows.
    """

    def __init__(
        self,
        core: Core,
        *,
        observers: Sequence[Observer],
        published: Callable[[PublishModels], None],
        failed: Callable[[Exception], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._core = core
        self._observers = tuple(observers)
        self._published = published
        self._failed = failed
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._outlets: dict[int, Outlet] = {}  # One a link, from `connect` to `disconnect`.
        self._pending: deque[Event] = deque()
        self._stepping = False
        self._broken = False
        self._now_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()

    def connect(self, link: int, outlet: Outlet) -> None:
        """Make `outlet` perform the effects for a new link."""
        self._outlets[link] = outlet

    def disconnect(self, link: int) -> None:
        """Forget a link; effects that still name it are dropped, since its keys ended with it."""
        self._outlets.pop(link, None)

    def post(self, event: Event) -> None:
        """Step an event and perform its effects, at once unless another step is under way."""
        if self._broken:
            return
        if self._stepping:
            self._postpone(event)
            return
        self._stepping = True
        try:
            self._step(event)
            while self._pending:
                self._step(self._pending.popleft())
            self._arm()
        except Exception as error:  # Whatever a step raises, the process must not go on with it.
            self._break(type(event).__name__, error)
        finally:
            self._stepping = False
        if not self._core.requests_open:
            self._idle.set()

    async def drain(self, drain_s: float) -> None:
        """Take no new requests; return when none is open, soon after `drain_s` at the latest."""
        self._idle.clear()
        self.post(DrainAsked(drain_s=drain_s))
        try:
            async with asyncio.timeout(drain_s + DRAIN_SLACK_S):
                await self._idle.wait()
        except TimeoutError:
            _log.error("drain_overran", extra={"requests_open": self._core.requests_open})

    def undrain(self) -> None:
        """Take requests again."""
        self.post(UndrainAsked())

    def close(self) -> None:
        """Stop the clock; nothing is stepped any more."""
        self._broken = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _postpone(self, event: Event) -> None:
        if len(self._pending) >= EVENTS_PENDING_MAX:
            raise OverflowError(f"{EVENTS_PENDING_MAX} events wait for one step")
        self._pending.append(event)

    def _step(self, event: Event) -> None:
        self._now_s = max(self._now_s, self._loop.time())
        if self._recorder is not None:
            self._recorder.take(event, self._now_s)
        begun_s = time.perf_counter()
        effects = self._core.step(event, self._now_s)
        took_s = time.perf_counter() - begun_s
        if self._recorder is not None:
            self._recorder.gave(effects)
        for effect in effects:
            self._perform(effect)
        for observer in self._observers:
            observer.stepped(event, effects, self._now_s, took_s)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, PublishModels):
            self._published(effect)
            return
        outlet = self._outlets.get(effect.link)
        if outlet is not None:
            outlet.perform(effect)

    def _arm(self) -> None:
        """Let the one timer fire at the next wake-up, or earlier: then it looks again."""
        due_s = self._core.next_wakeup_s
        if due_s is None:
            return
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._wake)

    def _wake(self) -> None:
        timer, self._timer = self._timer, None
        due_s = self._core.next_wakeup_s
        if timer is None or due_s is None:
            return
        # The loop may call early, by the resolution of its clock; the core must not see that.
        self._now_s = max(self._now_s, self._loop.time(), timer.when())
        if due_s <= self._now_s:
            self.post(Tick())
        else:
            self._arm()

    def _break(self, event: str, error: Exception) -> None:
        self.close()
        self._pending.clear()
        _log.critical("core_failed", extra={"event_kind": event}, exc_info=error)
        self._failed(error)
