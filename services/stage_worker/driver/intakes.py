"""The inputs of attempts: handles are fetched, bridges are fed, and the engine gets its part.

Every call gives the events that it caused, so that they are stepped before anything else.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from services.stage_worker.bridges.base import BridgeFactory, Context, Fed, SourceSpec
from services.stage_worker.bridges.intake import Append, Begin, Close, Intake, Nothing, Order
from services.stage_worker.core.contracts import resume_of
from services.stage_worker.core.effects import FeedAttempt, StartAttempt
from services.stage_worker.core.events import (
    AttemptBroke,
    AttemptStarted,
    Event,
    InputClosed,
    InputTaken,
    NothingToDo,
)
from services.stage_worker.core.submission import RoleSpec, Submission
from services.stage_worker.engines.base import Capabilities, Engine, EngineInput, Piece, Work
from stagemesh.control import ControlKind
from stagemesh.errors import MeshError
from stagemesh.link.core import Row, row_cost
from stagemesh.media import Body, Handle, MediaPart, Message, OutputKind, Part, Request, split_lane
from stagemesh.outcome import error_for

__all__ = ["Intakes", "Payloads"]

FETCH_S: Final = 30.0
"""How long the bytes behind one handle may take to come."""

_SEED_MASK: Final = (1 << 64) - 1
_log = logging.getLogger(__name__)


class Payloads(Protocol):
    """Where the bytes behind handles come from."""

    async def get(self, handle: Handle) -> bytes | memoryview:
        """Get all bytes of a handle, or raise `MeshError`."""
        ...


class _Taking:
    """The input of one attempt, as far as it has come; `gone` once nothing of it counts."""

    __slots__ = (
        "gone",
        "intake",
        "number",
        "queue",
        "role",
        "sources",
        "submission",
        "task",
        "transfer_s",
        "untaken",
    )

    def __init__(self, effect: StartAttempt) -> None:
        self.number = effect.attempt
        self.submission = effect.submission
        self.role = effect.role
        self.sources = {
            source.lane: SourceSpec(
                lane=source.lane, stage=source.stage, companion=source.companion
            )
            for source in effect.submission.sources_of(effect.role)
        }
        self.intake: Intake | None = None
        self.queue: deque[Row] = deque()
        self.task: asyncio.Task[None] | None = None
        self.transfer_s = 0.0
        """What its fetches took so far."""
        self.untaken: deque[InputTaken | None] = deque()
        """What of its sources the engine will have taken with each input that it was appended."""
        self.gone = False


class Intakes:
    """Feeds attempts in order. Only the fetch of a handle ever makes one wait, and no other."""

    def __init__(
        self,
        engine: Engine,
        payloads: Payloads,
        *,
        find_bridge: Callable[[str], BridgeFactory],
        post: Callable[[Event], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._engine = engine
        self._paces = engine.capabilities.paces_input
        self._payloads = payloads
        self._find_bridge = find_bridge
        self._post = post
        self._tasks = tasks
        self._open: dict[int, _Taking] = {}

    def start(self, effect: StartAttempt) -> list[Event]:
        """Make the bridge of an attempt, once the media that it reads are here."""
        taking = _Taking(effect)
        self._open[taking.number] = taking
        try:
            factory = self._find_bridge(taking.submission.bridge)
        except MeshError as error:
            return [AttemptBroke(attempt=taking.number, error=error.info)]
        request = taking.submission.request
        if factory.reads_media and any(_handles(request)):
            taking.task = self._tasks.create_task(
                self._start_later(taking, factory), name=f"fetch-{taking.number}"
            )
            return []
        return list(self._begin(taking, factory, request))

    def feed(self, effect: FeedAttempt) -> list[Event]:
        """Feed an attempt, now or when what came before has been fetched."""
        taking = self._open.get(effect.attempt)
        if taking is None:
            return []
        taking.queue.extend(effect.rows)
        return [] if taking.task is not None else list(self._advance(taking))

    def taken(self, made: list[Piece]) -> tuple[list[Piece], list[Event]]:
        """Take out what an engine step says of taken inputs: the other pieces, and the events."""
        if not self._paces or not any(piece.taken for piece in made):
            return made, []
        events: list[Event] = []
        for piece in made:
            taking = self._open.get(piece.attempt) if piece.taken else None
            if taking is not None:
                untaken = taking.untaken
                count = min(piece.taken, len(untaken))
                events += filter(None, [untaken.popleft() for _ in range(count)])
        return [piece for piece in made if not piece.taken], events

    def forget(self, attempt: int) -> None:
        """Drop an attempt's input; what is being fetched is given up."""
        taking = self._open.pop(attempt, None)
        if taking is None:
            return
        taking.gone = True
        taking.queue.clear()
        if taking.task is not None:
            taking.task.cancel()

    def close(self) -> None:
        """Drop the inputs of every attempt."""
        for attempt in list(self._open):
            self.forget(attempt)

    def _begin(self, taking: _Taking, factory: BridgeFactory, request: Request) -> Iterator[Event]:
        """Start the bridge; everything that it or the engine raises ends this attempt alone."""
        submission, role = taking.submission, taking.role

        def start() -> list[Order]:
            context = Context(
                request=request,
                params=submission.params,
                stage=submission.stage_name,
                companion=role.companion,
                choice=submission.choice_of(role),
                sources=tuple(taking.sources.values()),
                options=submission.bridge_options,
            )
            streams = self._engine.capabilities.stream_input
            taking.intake = Intake(factory(context), streams=streams)
            return taking.intake.start()

        yield from self._guarded(taking, start)

    def _advance(self, taking: _Taking) -> Iterator[Event]:
        """Feed what is here; at a handle, fetch it first.

        A row is taken at once if nothing was appended for it: the bridge kept it, or it came to
        nothing. Otherwise it is taken when the engine takes the last input that was made of it.
        """
        taken: dict[int, InputTaken] = {}
        queue = taking.queue
        while queue and not taking.gone:
            row = queue[0]
            if row.body is not None and row.body.handle is not None:
                taking.task = self._tasks.create_task(
                    self._advance_later(taking), name=f"fetch-{taking.number}"
                )
                break
            queue.popleft()
            waiting = len(taking.untaken)
            yield from self._feed_row(taking, row)
            units, size = row_cost(row)
            if len(taking.untaken) > waiting:
                taking.untaken[-1] = InputTaken(
                    attempt=taking.number, lane=row.lane, units=units, bytes=size
                )
                continue
            before = taken.get(row.lane)
            if before is not None:
                units, size = units + before.units, size + before.bytes
            taken[row.lane] = InputTaken(
                attempt=taking.number, lane=row.lane, units=units, bytes=size
            )
        yield from taken.values()

    def _feed_row(self, taking: _Taking, row: Row) -> Iterator[Event]:
        intake = taking.intake
        if intake is None:
            return
        fed = Fed(
            source=taking.sources[row.lane],
            units=row.units,
            pos=row.pos,
            text=row.text,
            ids=row.ids,
            kind=OutputKind(row.kind),
            body=row.body,
            last=row.end is not None,
            segment_end=row.segment_end,
        )
        yield from self._guarded(taking, lambda: intake.feed(fed))

    def _guarded(self, taking: _Taking, orders: Callable[[], list[Order]]) -> Iterator[Event]:
        number = taking.number
        try:
            for order in orders():
                yield from self._perform(taking, order)
        except MeshError as error:
            taking.gone = True
            yield AttemptBroke(attempt=number, error=error.info)
        except Exception as error:  # Bridges and engines are plugins: theirs must not end ours.
            _log.exception("attempt_broke", extra={"request_id": taking.submission.request_id})
            taking.gone = True
            kind = type(error).__name__
            info = error_for("engine_error", f"the input could not be given to the engine: {kind}")
            yield AttemptBroke(attempt=number, error=info)

    def _perform(self, taking: _Taking, order: Order) -> Iterator[Event]:
        number = taking.number
        match order:
            case Begin(input=given, streamed=streamed):
                work = _work(taking, given, self._engine.capabilities, streamed=streamed)
                self._engine.submit(work)
                yield AttemptStarted(attempt=number, transfer_s=taking.transfer_s)
                if not streamed:
                    yield InputClosed(attempt=number)
            case Append(input=given):
                self._engine.append(number, given)
                if self._paces:
                    taking.untaken.append(None)
            case Close():
                self._engine.close_input(number)
                yield InputClosed(attempt=number)
            case Nothing():
                yield NothingToDo(attempt=number)

    async def _start_later(self, taking: _Taking, factory: BridgeFactory) -> None:
        """Fetch the media of a request, then begin, then feed what came meanwhile."""
        request = taking.submission.request
        bodies: dict[str, Body] = {}
        for body in _handles(request):
            fetched = await self._fetched(taking, body)
            if fetched is None:
                return
            bodies[_handle_id(body)] = fetched
        taking.task = None
        for event in self._begin(taking, factory, _with_bodies(request, bodies)):
            self._post(event)
        for event in self._advance(taking):
            self._post(event)

    async def _advance_later(self, taking: _Taking) -> None:
        """Fetch the handle at the head of the queue, then go on."""
        row = taking.queue[0]
        if row.body is None:
            return
        fetched = await self._fetched(taking, row.body)
        if fetched is None:
            return
        taking.task = None
        taking.queue[0] = msgspec.structs.replace(row, body=fetched)
        for event in self._advance(taking):
            self._post(event)

    async def _fetched(self, taking: _Taking, body: Body) -> Body | None:
        """Get a body with its bytes; None if the attempt broke for want of them."""
        handle = body.handle
        if handle is None:
            return body
        begun_s = time.perf_counter()
        try:
            async with asyncio.timeout(FETCH_S):
                data = await self._payloads.get(handle)
        except TimeoutError:
            info = error_for("handle_lost", f"a payload did not come within {FETCH_S:g} s")
        except MeshError as error:
            info = error.info
        else:
            taking.transfer_s += time.perf_counter() - begun_s
            return msgspec.structs.replace(body, inline=bytes(data), handle=None)
        if not taking.gone:
            lost = AttemptBroke(attempt=taking.number, error=info, handle_id=handle.handle_id)
            self._post(lost)
        return None


def _work(
    taking: _Taking, given: EngineInput, capabilities: Capabilities, *, streamed: bool
) -> Work:
    submission: Submission = taking.submission
    role: RoleSpec = taking.role
    choice = submission.choice_of(role)
    # A stage beside the one that the adapter is for takes no notice of it.
    takes_adapters = ControlKind.ADAPTERS in capabilities.control.kinds
    return Work(
        attempt=taking.number,
        request_id=submission.request_id,
        stage=submission.stage_name,
        companion=role.companion,
        choice=choice,
        seed=submission.request.seed + choice & _SEED_MASK,
        seed_explicit=submission.request.seed_explicit,
        params=submission.params,
        wanted=frozenset(split_lane(lane).modality for lane in role.lanes),
        ids_wanted=role.token_ids,
        input=given,
        streamed=streamed,
        resume=resume_of(submission, role, capabilities),
        adapter=submission.request.adapter if takes_adapters else "",
        interactions=submission.interactions,
    )


def _handles(request: Request) -> Iterator[Body]:
    """Give the bodies of a request whose bytes are elsewhere."""
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, MediaPart) and part.body.handle is not None:
                yield part.body


def _handle_id(body: Body) -> str:
    return body.handle.handle_id if body.handle else ""


def _with_bodies(request: Request, bodies: dict[str, Body]) -> Request:
    """Put fetched bodies in the place of their handles."""

    def inline(part: Part) -> Part:
        if isinstance(part, MediaPart) and (body := bodies.get(_handle_id(part.body))):
            return msgspec.structs.replace(part, body=body)
        return part

    def whole(message: Message) -> Message:
        return msgspec.structs.replace(message, parts=tuple(map(inline, message.parts)))

    return msgspec.structs.replace(request, messages=tuple(map(whole, request.messages)))
