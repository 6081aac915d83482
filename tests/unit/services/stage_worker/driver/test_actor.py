import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.stage_worker.bridges import find_bridge
from services.stage_worker.core import Identity, ProcessState, Source, StageWorker
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.driver import Driver, Ledger
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.control import Answer, ControlKind, ControlSupport, ResetCache
from stagemesh.errors import MeshError
from stagemesh.link.core import LaneJournal, Row
from stagemesh.media import INLINE_BYTES_MAX, Body, Handle, Modality, lane_of
from stagemesh.outcome import ErrorCode, ErrorInfo, Outcome, error_for
from stagemesh.payload import PayloadStore
from stagemesh.telemetry import Metrics
from tests.helpers.hand_engine import HandEngine, KeptOutlet
from tests.helpers.worker_core import END, LINK, STAGE, TEXT_LANE, submission, text_piece

LEASE_S = 60.0
SOURCE = lane_of(0, 0, Modality.TEXT)
SOURCES = (Source(lane=SOURCE, stage="source", companion="", choice=0),)


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class NoPayloads:
    """A world without payloads of others."""

    async def get(self, handle: Handle) -> bytes:
        """Nothing is there."""
        raise MeshError(error_for("handle_lost"))


class Setting:
    """A driver with everything around it, running."""

    def __init__(self, folder: Path, engine: HandEngine | None = None) -> None:
        self.engine, self.outlet = engine or HandEngine(), KeptOutlet()
        self.core = StageWorker(Identity(pool="pool", replica_id="replica-0"))
        self.metrics = Metrics(process=False)
        self.store = PayloadStore(
            holder_id="replica-0",
            incarnation=1,
            address="127.0.0.1:1",
            directory=folder,
            bytes_max=1 << 24,
            lease_s=LEASE_S,
        )
        self.driver = Driver(
            self.core,
            self.engine,
            store=self.store,
            payloads=NoPayloads(),
            find_bridge=find_bridge,
            lease_s=LEASE_S,
            ledger=Ledger(self.metrics),
        )
        self.driver.connect(self.outlet)

    def attach(self) -> None:
        """Open a link."""
        attached = seen.LinkAttached(link=LINK, window_units=64, window_bytes=1 << 20)
        self.driver.post(attached)

    def submit(self, **given: object) -> None:
        """Submit an attempt."""
        made = submission(**given)  # type: ignore[arg-type]
        self.driver.post(seen.Submitted(link=LINK, submission=made))

    def counted(self, line: str) -> bool:
        """Whether the metrics have a line."""
        return line in self.metrics.render()[0].decode()


@asynccontextmanager
async def running(
    folder: Path, engine: HandEngine | None = None
) -> AsyncIterator[tuple[Setting, "asyncio.Task[ErrorInfo | None]"]]:
    """Run a driver; it is told to stop at the end, if it has not."""
    it = Setting(folder, engine)
    task = asyncio.create_task(it.driver.run())
    await it.outlet.until(lambda: it.outlet.reports)
    it.attach()
    try:
        yield it, task
    finally:
        it.driver.drain(0.0)
        async with asyncio.timeout(5):
            await asyncio.wait({task})
        it.store.close()


async def test_it_is_ready_when_it_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, _):
        assert it.core.state is ProcessState.READY


async def test_credit_for_input_comes_back_when_the_engine_took_it(tmp_path: Path) -> None:
    async with running(tmp_path, HandEngine(paces_input=True)) as (it, _):
        it.submit(sources=SOURCES)
        (work,) = it.engine.works
        rows = [Row(1, SOURCE, pos, 1, " x") for pos in range(64)]
        it.driver.post(seen.InputsArrived(link=LINK, rows=rows))
        assert len(it.engine.appended) == 64
        assert it.outlet.of(do.SendGrants) == []
        it.engine.steps.put_nowait([Piece(attempt=work.attempt, taken=40)])
        await it.outlet.until(lambda: it.outlet.of(do.SendGrants))
        grants = [grant for sent in it.outlet.of(do.SendGrants) for grant in sent.grants]
        assert [(grant.source, grant.units) for grant in grants] == [(SOURCE, 96)]
        assert it.outlet.of(do.SendRows) == []


async def test_a_submission_reaches_the_engine_and_its_outputs_the_link(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, _):
        it.submit()
        (work,) = it.engine.works
        assert (work.request_id, work.stage, work.streamed) == ("req_a", "thinker", False)
        it.engine.steps.put_nowait([text_piece(work.attempt, end=END)])
        await it.outlet.until(lambda: it.outlet.of(do.SendRows))
        assert it.counted('stagemesh_worker_attempts_total{end="finished"} 1.0')
        assert it.counted("stagemesh_worker_outputs_total 1.0")


async def test_what_is_made_again_is_neither_sent_nor_put_away(tmp_path: Path) -> None:
    image = lane_of(STAGE, 0, Modality.IMAGE)
    data = bytes(INLINE_BYTES_MAX + 1)
    resume = LaneJournal(lane=image, next=1, digest=digest_of(digest_of(data)))
    async with running(tmp_path) as (it, _):
        it.submit(
            modalities=(Modality.IMAGE,), contract=ResumeContract.REPLAY, resume=[resume], attempt=2
        )
        number = it.engine.works[0].attempt
        for end in (None, END):
            body = Body(inline=data if end is None else b"new", media_type="image/png")
            piece = Piece(attempt=number, modality=Modality.IMAGE, units=1, body=body, end=end)
            it.engine.steps.put_nowait([piece])
        await it.outlet.until(lambda: it.outlet.of(do.SendRows))
        ((row,),) = (order.rows for order in it.outlet.of(do.SendRows))
        assert (row.pos, row.units) == (1, 1)
        assert row.body is not None
        assert row.body.inline == b"new"
        assert it.store.bytes_used == 0


async def test_what_does_not_repeat_itself_fails_and_stops(tmp_path: Path) -> None:
    resume = LaneJournal(lane=TEXT_LANE, next=1, digest=digest_of(b" other"))
    async with running(tmp_path) as (it, _):
        it.submit(contract=ResumeContract.REPLAY, resume=[resume], attempt=2)
        number = it.engine.works[0].attempt
        it.engine.steps.put_nowait([text_piece(number)])
        await it.outlet.until(lambda: it.outlet.of(do.SendTerminal))
        (order,) = it.outlet.of(do.SendTerminal)
        assert order.terminal.outcome is Outcome.FAILED
        assert order.terminal.error is not None
        assert order.terminal.error.reason == "replay_diverged"
        assert order.terminal.error.retryable
        assert it.engine.aborted == [number]
        assert not it.outlet.of(do.SendRows)


async def test_a_new_owner_hears_which_payloads_are_left(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, _):
        handle = it.store.put(b"x", "req_a")
        claimed = (handle.handle_id, "h_gone")
        it.driver.post(seen.FenceRaised(link=LINK, request_id="req_a", epoch=2, handle_ids=claimed))
        assert it.outlet.of(do.SendFenced) == [
            do.SendFenced(link=LINK, request_id="req_a", epoch=2, held=(handle.handle_id,))
        ]
        it.driver.post(seen.ReleaseAsked(link=LINK, request_id="req_a", epoch=1))
        assert it.store.bytes_used == 1
        it.driver.post(seen.ReleaseAsked(link=LINK, request_id="req_a", epoch=2))
        assert it.store.bytes_used == 0


async def test_an_abort_after_a_submit_in_one_message_reaches_the_engine(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, _):
        it.submit()
        it.driver.post(seen.AbortAsked(link=LINK, slot=1, cause="client"))
        assert it.engine.aborted == [it.engine.works[0].attempt]


async def test_an_engine_that_cannot_abort_harms_nobody_else(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, task):
        it.submit()
        it.submit(request_id="req_b", slots=(2,))
        it.engine.abort_with = RuntimeError("broken")
        it.driver.post(seen.AbortAsked(link=LINK, slot=1, cause="client"))
        other = it.engine.works[1].attempt
        it.engine.steps.put_nowait([text_piece(other, end=END)])
        await it.outlet.until(lambda: it.outlet.of(do.SendRows))
        assert not task.done()


async def test_a_control_call_is_carried_out_beside_attempts(tmp_path: Path) -> None:
    """An engine that takes its time for one delays no submission and no abort."""
    async with running(tmp_path) as (it, _):
        loaded = seen.EngineLoaded(
            slots=4,
            contract=ResumeContract.NONE,
            control=ControlSupport(kinds=frozenset({ControlKind.RESET_CACHE})),
        )
        it.driver.post(loaded)
        asked = seen.ControlAsked(link=LINK, control_id=5, call=ResetCache(), timeout_s=9.0)
        it.driver.post(asked)
        it.submit()
        it.driver.post(seen.AbortAsked(link=LINK, slot=1, cause="client"))
        assert it.engine.aborted == [it.engine.works[0].attempt]
        assert it.outlet.of(do.SendControlled) == []
        it.engine.answers.put_nowait(Answer())
        await it.outlet.until(lambda: it.outlet.of(do.SendControlled))
        (answer,) = it.outlet.of(do.SendControlled)
        assert (answer.control_id, answer.answer.error) == (5, None)


async def test_a_tensor_goes_to_the_store_and_a_release_drops_it(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, _):
        it.submit(modalities=(Modality.TENSOR,))
        attempt = it.engine.works[0].attempt
        body = Body(inline=b"tensor")
        it.engine.steps.put_nowait(
            [Piece(attempt=attempt, modality=Modality.TENSOR, units=1, body=body, end=END)]
        )
        await it.outlet.until(lambda: it.outlet.of(do.SendRows))
        (row,) = it.outlet.of(do.SendRows)[0].rows
        assert row.body is not None
        assert row.body.handle is not None
        assert bytes(it.store.read(row.body.handle.handle_id, "req_a")) == b"tensor"
        it.driver.post(seen.ReleaseAsked(link=LINK, request_id="req_a", epoch=1))
        assert it.store.bytes_used == 0
        assert it.counted("stagemesh_worker_payload_bytes_total 6.0")


async def test_a_drain_waits_until_nobody_needs_the_payloads(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, task):
        it.store.put(b"result", "req_a")
        it.driver.drain(3600.0)
        assert not task.done()
        it.driver.post(seen.ReleaseAsked(link=LINK, request_id="req_a", epoch=1))
        async with asyncio.timeout(5):
            assert await task is None


async def test_a_drain_does_not_wait_longer_than_it_may(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, task):
        it.store.put(b"result", "req_a")
        it.driver.drain(0.01)
        async with asyncio.timeout(5):
            assert await task is None


async def test_an_engine_that_raises_fails_every_attempt_and_ends_the_run(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (it, task):
        it.submit()
        it.engine.steps.put_nowait(RuntimeError("secret"))
        async with asyncio.timeout(5):
            error = await task
        assert error is not None
        assert error.code is ErrorCode.ENGINE_ERROR
        (told,) = it.outlet.of(do.SendTerminal)
        assert told.terminal.error is not None
        assert "secret" not in told.terminal.error.message


async def test_an_engine_that_stops_by_itself_is_broken_too(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, task):
        it.engine.steps.put_nowait(None)
        async with asyncio.timeout(5):
            error = await task
        assert error is not None


async def test_refusals_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, _):
        it.submit(slots=(1, 2, 3, 4, 5))
        told = [order.terminal.outcome for order in it.outlet.of(do.SendTerminal)]
        assert told == [Outcome.REJECTED]
        assert it.counted('stagemesh_worker_attempts_total{end="rejected"} 1.0')


async def test_a_deadline_wakes_the_core(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, _):
        it.submit(deadline_left_s=0.01)
        await it.outlet.until(lambda: it.outlet.of(do.SendTerminal))
        (told,) = it.outlet.of(do.SendTerminal)
        assert told.terminal.outcome is Outcome.DEADLINE_EXCEEDED


async def test_a_core_that_raises_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (it, task):

        def bug(event: seen.Event, now_s: float) -> list[do.Effect]:
            raise AssertionError("a bug")

        monkeypatch.setattr(it.core, "step", bug)
        it.driver.post(seen.Tick(steps=0))
        async with asyncio.timeout(5):
            await asyncio.wait({task})
        assert isinstance(task.exception(), BaseExceptionGroup)
