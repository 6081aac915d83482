"""The driver: order, re-entrancy, the one timer, and what happens when the core breaks."""

import asyncio
from collections.abc import Callable

import pytest

from services.orchestrator.core.effects import (
    AnswerUnknown,
    Effect,
    PublishedModel,
    PublishModels,
)
from services.orchestrator.core.events import ClientLost, DrainAsked, Event, Tick
from tests.helpers.scripted_core import DriverLog, ScriptedCore, drive


class Link:
    """An outlet that notes effects, and may bring an event while it does."""

    def __init__(self, log: DriverLog, then: Callable[[], None] | None = None) -> None:
        self.log = log
        self.then = then

    def perform(self, effect: Effect) -> None:
        """Note an effect."""
        self.log.lines.append(effect)
        if self.then is not None:
            self.then()


async def test_effects_are_performed_in_order_by_the_outlet_of_their_link() -> None:
    effects = [AnswerUnknown(link=link, slot=slot) for link, slot in ((1, 1), (2, 1), (1, 2))]
    log, core = DriverLog(), ScriptedCore(lambda event: list(effects))
    driver = drive(core, log)
    driver.connect(1, Link(log))
    driver.connect(2, Link(log))

    driver.post(Tick())

    assert log.lines == [*effects, ("stepped", Tick(), 3)]


async def test_an_effect_for_a_link_that_is_gone_is_dropped() -> None:
    log = DriverLog()
    core = ScriptedCore(lambda event: [AnswerUnknown(link=7, slot=1)])
    driver = drive(core, log)
    driver.connect(7, Link(log))
    driver.disconnect(7)

    driver.post(Tick())

    assert log.lines == [("stepped", Tick(), 1)]
    assert not log.failed


async def test_an_event_raised_while_effects_are_performed_waits_for_the_rest_of_them() -> None:
    log = DriverLog()

    def answer(event: Event) -> list[Effect]:
        if event == ClientLost(link=9):
            return []
        return [AnswerUnknown(link=1, slot=1), AnswerUnknown(link=2, slot=2)]

    core = ScriptedCore(answer)
    driver = drive(core, log)
    driver.connect(1, Link(log, lambda: driver.post(ClientLost(link=9))))
    driver.connect(2, Link(log))

    driver.post(Tick())

    assert log.lines == [
        AnswerUnknown(link=1, slot=1),
        AnswerUnknown(link=2, slot=2),
        ("stepped", Tick(), 2),
        ("stepped", ClientLost(link=9), 0),
    ]


async def test_published_models_go_to_their_own_listener() -> None:
    models = PublishModels(models=(PublishedModel(model="echo", revision="r", ready=True),))
    log = DriverLog()
    driver = drive(ScriptedCore(lambda event: [models]), log)

    driver.post(Tick())

    assert log.lines[0] == models


async def test_a_core_that_raises_stops_the_driver_and_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(event: Event) -> list[Effect]:
        raise KeyError("lane")

    log, core = DriverLog(), ScriptedCore(answer)
    driver = drive(core, log)

    driver.post(Tick())
    driver.post(ClientLost(link=1))

    assert [type(error) for error in log.failed] == [KeyError]
    assert [event for event, _ in core.stepped] == [Tick()]
    assert [record.__dict__["event_kind"] for record in caplog.records] == ["Tick"]


async def test_an_outlet_that_raises_stops_the_driver_too() -> None:
    def broken() -> None:
        raise ValueError("no such enum value")

    log = DriverLog()
    driver = drive(ScriptedCore(lambda event: [AnswerUnknown(link=1, slot=1)]), log)
    driver.connect(1, Link(log, broken))

    driver.post(Tick())

    assert [type(error) for error in log.failed] == [ValueError]


async def test_effects_that_bring_events_without_end_stop_the_driver() -> None:
    log = DriverLog()
    core = ScriptedCore(lambda event: [AnswerUnknown(link=1, slot=1)])
    driver = drive(core, log)

    def two_more() -> None:
        driver.post(Tick())
        driver.post(Tick())

    driver.connect(1, Link(log, two_more))
    driver.post(Tick())

    assert [type(error) for error in log.failed] == [OverflowError]


async def test_the_wake_up_brings_a_tick_no_earlier_than_it_was_asked_for() -> None:
    loop = asyncio.get_running_loop()
    ticked = asyncio.Event()
    core = ScriptedCore()
    due_s = core.next_wakeup_s = loop.time() + 0.005

    def answer(event: Event) -> list[Effect]:
        if event == Tick():
            core.next_wakeup_s = None
            ticked.set()
        return []

    core.answer = answer
    driver = drive(core, DriverLog())
    driver.post(ClientLost(link=1))
    await ticked.wait()

    assert [event for event, _ in core.stepped] == [ClientLost(link=1), Tick()]
    assert core.stepped[1][1] >= due_s


async def test_a_wake_up_that_moved_away_brings_one_tick_at_its_new_instant() -> None:
    loop = asyncio.get_running_loop()
    ticked = asyncio.Event()
    core = ScriptedCore()
    core.next_wakeup_s = loop.time() + 0.002

    def answer(event: Event) -> list[Effect]:
        if event == Tick():
            core.next_wakeup_s = None
            ticked.set()
        return []

    core.answer = answer
    driver = drive(core, DriverLog())
    driver.post(ClientLost(link=1))
    late_s = core.next_wakeup_s = loop.time() + 0.01
    driver.post(ClientLost(link=2))
    await ticked.wait()

    assert [type(event) for event, _ in core.stepped] == [ClientLost, ClientLost, Tick]
    assert core.stepped[2][1] >= late_s


async def test_time_never_runs_backwards_for_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    core = ScriptedCore()
    driver = drive(core, DriverLog())
    first_s = asyncio.get_running_loop().time() + 10
    for now_s in (first_s, first_s - 1, first_s + 1):
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "time", lambda now_s=now_s: now_s)
            driver.post(Tick())

    assert [now_s for _, now_s in core.stepped] == [first_s, first_s, first_s + 1]


async def test_drain_returns_when_the_last_request_has_ended() -> None:
    core = ScriptedCore()
    core.requests_open = 1
    driver = drive(core, DriverLog())
    draining = asyncio.create_task(driver.drain(30.0))
    await asyncio.sleep(0)
    assert core.stepped[0][0] == DrainAsked(drain_s=30.0)
    assert not draining.done()

    core.requests_open = 0
    driver.post(Tick())

    await draining


async def test_drain_returns_at_once_when_nothing_is_open() -> None:
    driver = drive(ScriptedCore(), DriverLog())
    async with asyncio.timeout(1):
        await driver.drain(30.0)


async def test_a_closed_driver_steps_nothing() -> None:
    core = ScriptedCore()
    driver = drive(core, DriverLog())
    driver.close()
    driver.post(Tick())

    assert core.stepped == []
