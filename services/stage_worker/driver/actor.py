"""The driver: every event of the worker goes through here, one at a time.

All of it runs on one event loop and a step never awaits, so an event is stepped in the callback
that brought it. Effects are performed after their step; what performing one causes is stepped next,
before any event that came meanwhile, so the core always knows how its orders went.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from services.stage_worker.bridges.base import BridgeFactory
from services.stage_worker.core import Replays, StageWorker, effective_contract
from services.stage_worker.core import effects as do
from services.stage_worker.core.events import (
    DrainAsked,
    EngineBroke,
    EngineLoaded,
    Event,
    Interacted,
    PiecesMade,
    Tick,
)
from services.stage_worker.driver.engine_calls import EngineCalls
from services.stage_worker.driver.intakes import Intakes, Payloads
from services.stage_worker.driver.ledger import Ledger
from services.stage_worker.driver.outgoing import Outgoing
from services.stage_worker.engines.base import Engine, InteractiveEngine, Piece
from stagemesh.errors import MeshError, unsupported
from stagemesh.outcome import ErrorInfo, Outcome, error_for

if TYPE_CHECKING:
    from stagemesh.payload import PayloadStore

__all__ = ["Driver", "LinkEffect", "Outlet"]

SWEEPS_PER_LEASE: Final = 6

_log = logging.getLogger(__name__)

LinkEffect = (
    do.SayGoAway
    | do.SendControlled
    | do.SendFenced
    | do.SendGrants
    | do.SendHandBack
    | do.SendHandleLost
    | do.SendInteracted
    | do.SendRows
    | do.SendTerminal
    | do.SendUnknown
)


class Outlet(Protocol):
    """The links, as the driver sees them. Nothing here waits."""

    def perform(self, effect: LinkEffect) -> None:
        """Send something on the link that the effect names, if it is still there."""
        ...

    def report(self) -> None:
        """Tell every link, and health, of the worker's state."""
        ...


class Driver:
    """Owns the core, and gives the engine its orders."""

    def __init__(
        self,
        core: StageWorker,
        engine: Engine,
        *,
        store: "PayloadStore",
        payloads: Payloads,
        find_bridge: Callable[[str], BridgeFactory],
        lease_s: float,
        ledger: Ledger,
    ) -> None:
        self._core = core
        self._engine = engine
        self._store = store
        self._payloads = payloads
        self._find_bridge = find_bridge
        self._sweep_s = lease_s / SWEEPS_PER_LEASE
        self._ledger = ledger
        self._outgoing = Outgoing(store, self._ledger, core.request_of)
        self._replays = Replays(self._outgoing.counted)
        self._loop = asyncio.get_running_loop()
        self._outlet: Outlet | None = None
        self._intakes: Intakes | None = None
        self._calls: EngineCalls | None = None
        self._pending: deque[Event] = deque()
        self._stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._drain_until_s: float | None = None
        self._exit_when_empty = False
        self._over: asyncio.Future[ErrorInfo | None] = self._loop.create_future()

    def connect(self, outlet: Outlet) -> None:
        """Make `outlet` perform what concerns links."""
        self._outlet = outlet

    def post(self, event: Event) -> None:
        """Step an event and perform its effects, at once unless another step is under way."""
        self._pending.append(event)
        if self._stepping or self._over.done():
            return
        self._stepping = True
        try:
            while self._pending:
                self._step(self._pending.popleft())
            self._arm()
        except Exception as error:  # A core that raised is in no state that anybody knows.
            _log.critical("core_failed", exc_info=error)
            self._pending.clear()
            if not self._over.done():
                self._over.set_exception(error)
        finally:
            self._stepping = False

    async def run(self) -> ErrorInfo | None:
        """Serve the loaded engine until the core says that it is over.

        Returns what broke the engine, or None after a drain.

        Raises:
            ExceptionGroup: With what the core raised; the process must not go on with it.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._intakes = Intakes(
                    self._engine,
                    self._payloads,
                    find_bridge=self._find_bridge,
                    post=self.post,
                    tasks=tasks,
                )
                self._calls = EngineCalls(self._engine, self.post, tasks)
                consumer = tasks.create_task(self._consume(), name="engine-outputs")
                self._sweep()
                capabilities = self._engine.capabilities
                contract = effective_contract(capabilities)
                self.post(
                    EngineLoaded(
                        slots=capabilities.slots, contract=contract, control=capabilities.control
                    )
                )
                error = await self._over
                consumer.cancel()
                self._calls.close()
                self._intakes.close()
        finally:
            for timer in (self._timer, self._sweeper):
                if timer is not None:
                    timer.cancel()
        return error

    def drain(self, drain_s: float) -> None:
        """Take nothing new; `run` returns when all is done, after `drain_s` at the latest."""
        if self._drain_until_s is None:
            self._drain_until_s = self._loop.time() + drain_s
            self.post(DrainAsked(drain_s=drain_s))

    def look(self) -> int:
        """Note what is worth a look now and then; give the engine's count of steps."""
        held_bytes = self._core.attempts.held_bytes
        self._ledger.looked(held_bytes=held_bytes, stray_pieces=self._core.stray_pieces)
        return self._engine.load_report().steps

    async def _consume(self) -> None:
        """Take what the engine gives, one list for each of its steps."""
        try:
            async for given in self._engine.outputs():
                made = self._note_taken(given)
                self._ledger.step_made(len(made))
                pieces, broken = self._replays.cut(made) if self._replays else (made, [])
                if self._outgoing.concerns(pieces):
                    pieces, unstored = await self._outgoing.stored(pieces)
                    broken += unstored
                for event in broken:
                    self.post(event)
                self.post(PiecesMade(pieces=pieces))
            error = error_for("engine_error", "the engine has stopped")
        except Exception as failure:  # Whatever it raises, the engine is of no more use.
            _log.exception("engine_broke")
            error = error_for("engine_error", f"the engine broke: {type(failure).__name__}")
        self.post(EngineBroke(error=error))

    def _note_taken(self, given: list[Piece]) -> list[Piece]:
        """Give credit for the inputs that the engine has taken; return what else it gave."""
        if self._intakes is None:
            return given
        made, taken = self._intakes.taken(given)
        for event in taken:
            self.post(event)
        return made

    def _step(self, event: Event) -> None:
        caused: list[Event] = []
        for effect in self._core.step(event, self._loop.time()):
            caused += self._perform(effect)
        self._pending.extendleft(reversed(caused))

    def _perform(self, effect: do.Effect) -> list[Event]:
        match effect:
            case do.StartAttempt() if self._intakes is not None:
                self._replays.start(effect.attempt, effect.submission, effect.role)
                return self._intakes.start(effect)
            case do.FeedAttempt() if self._intakes is not None:
                return self._intakes.feed(effect)
            case do.ForgetAttempt():
                self._ledger.ended(effect.end)
                self._replays.forget(effect.attempt)
                if self._intakes is not None:
                    self._intakes.forget(effect.attempt)
            case do.AbortEngine() | do.CallEngine() | do.InteractEngine():
                return self._tell_engine(effect)
            case do.ReleasePayloads() | do.RenewPayloads():
                self._keep_or_drop(effect)
            case do.ClaimPayloads():
                self._claim(effect)
            case do.Exit():
                self._exit(effect.error)
            case do.ReportState() if self._outlet is not None:
                self._outlet.report()
            case do.SendTerminal() if effect.terminal.outcome is Outcome.REJECTED:
                self._ledger.ended("rejected")
                self._send(effect)
            case _:
                self._send(effect)
        return []

    def _tell_engine(
        self, effect: do.AbortEngine | do.CallEngine | do.InteractEngine
    ) -> list[Event]:
        if isinstance(effect, do.InteractEngine):
            return [self._interact(effect)]
        if isinstance(effect, do.AbortEngine):
            self._abort(effect.attempt)
        elif self._calls is not None:
            self._calls.start(effect)
        return []

    def _abort(self, attempt: int) -> None:
        """Tell the engine to stop an attempt; if it cannot even be told, that harms nobody else."""
        try:
            self._engine.abort(attempt)
        except Exception:  # Engines are plugins: the attempt holds its slot until it ends.
            _log.exception("abort_failed", extra={"attempt": attempt})

    def _interact(self, effect: do.InteractEngine) -> Interacted:
        """Give the engine another prompt; whatever it raises concerns the prompt alone."""
        attempt, interaction_id = effect.attempt, effect.interaction_id
        try:
            if not isinstance(self._engine, InteractiveEngine):
                raise unsupported("This engine takes no other prompt.")
            applied_at = self._engine.interact(attempt, effect.text)
        except MeshError as error:
            return Interacted(attempt=attempt, interaction_id=interaction_id, error=error.info)
        except Exception as error:  # Engines are plugins: theirs must not end ours.
            _log.exception("interaction_broke")
            info = error_for(
                "engine_error", f"the prompt could not be given: {type(error).__name__}"
            )
            return Interacted(attempt=attempt, interaction_id=interaction_id, error=info)
        return Interacted(attempt=attempt, interaction_id=interaction_id, applied_at=applied_at)

    def _send(self, effect: do.Effect) -> None:
        if self._outlet is not None and isinstance(effect, LinkEffect):
            self._outlet.perform(effect)

    def _keep_or_drop(self, effect: do.ReleasePayloads | do.RenewPayloads) -> None:
        if isinstance(effect, do.RenewPayloads):
            self._store.renew(effect.request_id, self._loop.time())
        else:
            self._store.release(effect.request_id, effect.handle_ids)
            self._see_whether_empty()

    def _claim(self, effect: do.ClaimPayloads) -> None:
        """Let the payloads of a request live on for its new owner, and tell it which are left."""
        self._store.renew(effect.request_id, self._loop.time())
        self._send(
            do.SendFenced(
                link=effect.link,
                request_id=effect.request_id,
                epoch=effect.epoch,
                held=self._store.held(effect.request_id, effect.handle_ids),
            )
        )

    def _exit(self, error: ErrorInfo | None) -> None:
        """End now, or when nobody needs the payloads any more, by the end of the drain."""
        if error is not None:
            self._finish(error)
            return
        self._exit_when_empty = True
        self._see_whether_empty()
        if not self._over.done() and self._drain_until_s is not None:
            self._loop.call_at(self._drain_until_s, self._finish, None)

    def _see_whether_empty(self) -> None:
        if self._exit_when_empty and not self._store.bytes_used:
            self._finish(None)

    def _finish(self, error: ErrorInfo | None) -> None:
        if not self._over.done():
            self._over.set_result(error)

    def _arm(self) -> None:
        """Let the one timer fire at the next wake-up, or earlier: then it looks again."""
        due_s = self._core.next_wakeup_s()
        if due_s is None:
            return
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        due_s = self._core.next_wakeup_s()
        if due_s is not None and due_s <= self._loop.time():
            self.post(Tick(steps=self.look()))
        else:
            self._arm()

    def _sweep(self) -> None:
        """Drop the payloads whose leases ended, a few times in each lease."""
        if self._store.sweep(self._loop.time()):
            self._see_whether_empty()
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
