import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from services.stage_worker.bridges import find_bridge
from services.stage_worker.core import RoleSpec, Source, Submission
from services.stage_worker.core.effects import FeedAttempt, StartAttempt
from services.stage_worker.core.events import (
    AttemptBroke,
    AttemptStarted,
    Event,
    InputClosed,
    InputTaken,
    NothingToDo,
)
from services.stage_worker.driver import Intakes
from services.stage_worker.engines.base import (
    Piece,
    Resume,
    ResumeContract,
    TensorsInput,
    TextInput,
)
from stagemesh.errors import MeshError, invalid
from stagemesh.link.core import LaneJournal, Row
from stagemesh.media import Body, Handle, Modality, Request, lane_of
from stagemesh.outcome import ErrorCode, error_for
from tests.helpers.bridge_contexts import spoken, user
from tests.helpers.hand_engine import HandEngine
from tests.helpers.worker_core import END, TEXT_LANE, submission

SOURCE = lane_of(0, 0, Modality.TEXT)
TENSOR = lane_of(0, 0, Modality.TENSOR)
SOURCES = (Source(lane=SOURCE, stage="source", companion="", choice=0),)


def handle(name: str) -> Handle:
    return Handle(
        handle_id=name, request_id="req_a", holder_id="w", incarnation=1, address="", size_bytes=5
    )


class Payloads:
    """Payloads that arrive when a test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.arrivals: dict[str, asyncio.Future[bytes]] = {}

    async def get(self, handle: Handle) -> bytes:
        """Wait for the test."""
        self.asked.put_nowait(handle.handle_id)
        return await self.arrivals.setdefault(
            handle.handle_id, asyncio.get_running_loop().create_future()
        )


class Setting:
    """Intakes, and the events that come of fetching."""

    def __init__(self, engine: HandEngine, tasks: asyncio.TaskGroup) -> None:
        self.engine = engine
        self.payloads = Payloads()
        self.posted: asyncio.Queue[Event] = asyncio.Queue()
        self.intakes = Intakes(
            engine,
            self.payloads,
            find_bridge=find_bridge,
            post=self.posted.put_nowait,
            tasks=tasks,
        )

    def start(self, given: Submission, attempt: int = 1) -> list[Event]:
        """Start the first role of a submission."""
        role: RoleSpec = given.roles[0]
        return self.intakes.start(StartAttempt(attempt=attempt, submission=given, role=role))

    def feed(self, *rows: Row, attempt: int = 1) -> list[Event]:
        """Feed an attempt."""
        return self.intakes.feed(FeedAttempt(attempt=attempt, rows=list(rows)))

    def took(self, count: int, attempt: int = 1) -> list[Event]:
        """Let the engine say that it took appended inputs."""
        return self.intakes.taken([Piece(attempt=attempt, taken=count)])[1]

    async def asked(self, name: str) -> None:
        """Wait until a handle is being fetched."""
        async with asyncio.timeout(5):
            assert await self.payloads.asked.get() == name

    async def next(self) -> Event:
        """Wait for the next event."""
        async with asyncio.timeout(5):
            return await self.posted.get()


def taken(units: int, size: int) -> InputTaken:
    return InputTaken(attempt=1, lane=SOURCE, units=units, bytes=size)


@asynccontextmanager
async def setting(engine: HandEngine | None = None) -> AsyncIterator[Setting]:
    """Make intakes whose tasks end with the test."""
    async with asyncio.TaskGroup() as tasks:
        it = Setting(engine or HandEngine(), tasks)
        yield it
        it.intakes.close()


async def test_a_request_that_is_complete_starts_at_once() -> None:
    async with setting() as it:
        assert it.start(submission(text="go")) == [
            AttemptStarted(attempt=1),
            InputClosed(attempt=1),
        ]
        (work,) = it.engine.works
        assert work.input == TextInput(text="go")
        assert (work.streamed, work.wanted) == (False, frozenset({Modality.TEXT}))


async def test_the_seed_includes_the_choice() -> None:
    async with setting() as it:
        given = submission(slots=(1, 2))
        request = msgspec.structs.replace(given.request, seed=2**64 - 1)
        given = msgspec.structs.replace(given, request=request)
        for attempt, role in enumerate(given.roles, 1):
            it.intakes.start(StartAttempt(attempt=attempt, submission=given, role=role))
        assert [work.seed for work in it.engine.works] == [2**64 - 1, 0]


async def test_streamed_input_is_appended_taken_and_closed() -> None:
    async with setting() as it:
        assert it.start(submission(sources=SOURCES)) == [AttemptStarted(attempt=1)]
        events = it.feed(Row(1, SOURCE, 0, 1, " a"), Row(1, SOURCE, 1, 2, " b c", end=END))
        assert events == [
            InputClosed(attempt=1),
            InputTaken(attempt=1, lane=SOURCE, units=3, bytes=6),
        ]
        assert it.engine.appended == [
            (1, TextInput(text=" a", units=1, origin=(0, 1))),
            (1, TextInput(text=" b c", units=2, origin=(1, 3))),
        ]
        assert it.engine.closed_inputs == [1]


async def test_what_was_made_of_a_row_is_taken_when_the_engine_takes_it() -> None:
    async with setting(HandEngine(paces_input=True)) as it:
        it.start(msgspec.structs.replace(submission(sources=SOURCES), bridge="clauses"))
        begun = it.feed(Row(1, SOURCE, 0, 5, "The first sentence. "))
        assert begun == [AttemptStarted(attempt=1), taken(5, 20)]
        kept = it.feed(Row(1, SOURCE, 5, 2, "The second"))
        assert kept == [taken(2, 10)]
        assert it.feed(Row(1, SOURCE, 7, 2, " sentence. ")) == []
        assert it.feed(Row(1, SOURCE, 9, 6, "The third sentence. The fourth sentence. ")) == []
        assert it.took(1) == [taken(2, 11)]
        assert it.took(1) == []
        assert it.took(7) == [taken(6, 41)]
        assert it.took(1, attempt=2) == []


async def test_pieces_are_parted_from_what_the_engine_says_it_took() -> None:
    async with setting(HandEngine(paces_input=True)) as it:
        it.start(submission(sources=SOURCES))
        it.feed(Row(1, SOURCE, 0, 1, " a"))
        made = Piece(attempt=1, text="x")
        assert it.intakes.taken([made]) == ([made], [])
        assert it.intakes.taken([Piece(attempt=1, taken=1), made]) == ([made], [taken(1, 2)])


async def test_the_engine_is_told_where_to_go_on_and_whether_ids_are_asked_for() -> None:
    engine = HandEngine(contract=ResumeContract.TOKENS)
    lane = LaneJournal(lane=TEXT_LANE, next=2, ids=[4, 5])
    async with setting(engine) as it:
        it.start(submission(token_ids=True, contract=ResumeContract.TOKENS, resume=[lane]))
        it.start(submission(), attempt=2)
        begun, fresh = it.engine.works
        assert begun.ids_wanted
        assert begun.resume == Resume(
            contract=ResumeContract.TOKENS, positions={Modality.TEXT: 2}, token_ids=(4, 5)
        )
        assert (fresh.ids_wanted, fresh.resume) == (False, None)


async def test_an_engine_of_another_contract_is_not_given_the_attempt() -> None:
    lane = LaneJournal(lane=TEXT_LANE, next=2, ids=[4, 5])
    async with setting() as it:
        (broke,) = it.start(submission(contract=ResumeContract.TOKENS, resume=[lane]))
        assert isinstance(broke, AttemptBroke)
        assert broke.error.code is ErrorCode.PROTOCOL
        assert it.engine.works == []


async def test_what_the_engine_refuses_keeps_its_cause() -> None:
    engine = HandEngine()
    engine.refuse_with = invalid("too long", reason="context_length_exceeded")
    async with setting(engine) as it:
        (broke,) = it.start(submission())
        assert isinstance(broke, AttemptBroke)
        assert broke.error.reason == "context_length_exceeded"


async def test_what_an_engine_raises_by_mistake_is_its_error_without_details() -> None:
    engine = HandEngine()
    engine.refuse_with = KeyError("secret")
    async with setting(engine) as it:
        (broke,) = it.start(submission())
        assert isinstance(broke, AttemptBroke)
        assert broke.error.code is ErrorCode.ENGINE_ERROR
        assert "secret" not in broke.error.message
        assert it.feed(Row(1, SOURCE, 0, 1, "x")) == []


async def test_an_unknown_bridge_breaks_its_attempt() -> None:
    async with setting() as it:
        given = msgspec.structs.replace(submission(), bridge="none such")
        (broke,) = it.start(given)
        assert isinstance(broke, AttemptBroke)
        assert broke.error.code is ErrorCode.UNSUPPORTED


async def test_no_input_at_all_is_nothing_to_do() -> None:
    async with setting() as it:
        given = msgspec.structs.replace(submission(sources=SOURCES), bridge="clauses")
        assert it.start(given) == []
        events = it.feed(Row(1, SOURCE, 0, 1, " ", end=END))
        assert events[0] == NothingToDo(attempt=1)


async def test_a_handle_is_fetched_before_the_bridge_sees_it_and_order_is_kept() -> None:
    async with setting() as it:
        source = Source(lane=TENSOR, stage="encoder", companion="", choice=0)
        given = submission(sources=(source,), text="a circle")
        it.start(msgspec.structs.replace(given, bridge="condition"))
        body = Body(handle=handle("h"))
        assert it.feed(Row(1, TENSOR, 0, 1, body=body)) == []
        assert it.feed(Row(1, TENSOR, 1, 0, end=END)) == []
        await it.asked("h")
        it.payloads.arrivals["h"].set_result(b"12345")
        started, *events = [await it.next() for _ in range(3)]
        assert isinstance(started, AttemptStarted)
        assert started.attempt == 1
        assert started.transfer_s > 0.0
        assert events == [
            InputClosed(attempt=1),
            InputTaken(attempt=1, lane=TENSOR, units=1, bytes=5),
        ]
        assert it.engine.works[0].input == TensorsInput(buffers={"": b"12345"}, text="a circle")


async def test_media_are_fetched_only_for_a_bridge_that_reads_them() -> None:
    async with setting() as it:
        part = msgspec.structs.replace(spoken(), body=Body(handle=handle("audio")))
        request = Request(model="m", messages=(user("hear", part),))
        given = msgspec.structs.replace(submission(), request=request)
        assert it.start(given, attempt=1)
        assert it.payloads.asked.empty()
        heard = msgspec.structs.replace(given, bridge="transcript")
        assert it.start(heard, attempt=2) == []
        await it.asked("audio")
        it.payloads.arrivals["audio"].set_result(b"12345")
        started = await it.next()
        assert isinstance(started, AttemptStarted)
        assert (started.attempt, started.transfer_s > 0.0) == (2, True)


async def test_bytes_that_cannot_be_had_break_the_attempt_and_name_the_handle() -> None:
    async with setting() as it:
        part = msgspec.structs.replace(spoken(), body=Body(handle=handle("audio")))
        request = Request(model="m", messages=(user(part),))
        given = msgspec.structs.replace(submission(), request=request, bridge="transcript")
        it.start(given)
        await it.asked("audio")
        it.payloads.arrivals["audio"].set_exception(MeshError(error_for("handle_lost")))
        broke = await it.next()
        assert isinstance(broke, AttemptBroke)
        assert (broke.handle_id, broke.error.reason) == ("audio", "handle_lost")


async def test_an_attempt_that_is_forgotten_stops_fetching_and_says_nothing() -> None:
    async with setting() as it:
        part = msgspec.structs.replace(spoken(), body=Body(handle=handle("audio")))
        request = Request(model="m", messages=(user(part),))
        given = msgspec.structs.replace(submission(), request=request, bridge="transcript")
        it.start(given)
        await it.asked("audio")
        it.intakes.forget(1)
        it.intakes.forget(1)
        await asyncio.sleep(0)
        assert it.payloads.arrivals["audio"].cancelled()
        assert it.posted.empty()
        assert it.feed(Row(1, SOURCE, 0, 1, "x")) == []
