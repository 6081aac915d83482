import asyncio
from collections.abc import Callable

import msgspec
import pytest

from services.stage_worker.bridges import find_bridge
from services.stage_worker.bridges.base import Bridge, BridgeFactory, Context, Fed
from services.stage_worker.core import Source
from services.stage_worker.core.effects import FeedAttempt, StartAttempt
from services.stage_worker.core.events import AttemptBroke, AttemptStarted, InputClosed
from services.stage_worker.driver import Intakes
from services.stage_worker.engines.base import EngineInput
from stagemesh.link.core import Row
from stagemesh.media import Handle, Modality, lane_of
from stagemesh.outcome import ErrorCode
from tests.helpers.hand_engine import HandEngine
from tests.helpers.worker_core import submission

SOURCE = Source(lane=lane_of(0, 0, Modality.TEXT), stage="source", companion="", choice=0)


def factory_of(fails: str) -> BridgeFactory:
    """Make a bridge with a mistake in one of its three parts."""

    class Faulty:
        complete = False

        def __init__(self, context: Context) -> None:
            self._fail("made")

        def start(self) -> list[EngineInput]:
            self._fail("started")
            return []

        def feed(self, fed: Fed) -> list[EngineInput]:
            self._fail("fed")
            return []

        @staticmethod
        def _fail(now: str) -> None:
            if now == fails:
                raise TypeError("secret")

    class Factory:
        reads_media = False

        def __call__(self, context: Context) -> Bridge:
            return Faulty(context)

    return Factory()


async def no_payload(handle: Handle) -> bytes:
    raise AssertionError(handle)


class NoPayloads:
    """Payloads of a request that has none."""

    get = staticmethod(no_payload)


def finding(faulty: BridgeFactory) -> Callable[[str], BridgeFactory]:
    return lambda name: faulty if name == "faulty" else find_bridge(name)


@pytest.mark.parametrize("fails", ["made", "started", "fed"])
async def test_what_a_bridge_raises_by_mistake_ends_its_attempt_and_no_other(fails: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        intakes = Intakes(
            HandEngine(),
            NoPayloads(),
            find_bridge=finding(factory_of(fails)),
            post=lambda event: None,
            tasks=tasks,
        )
        given = msgspec.structs.replace(submission(sources=(SOURCE,)), bridge="faulty")
        events = intakes.start(StartAttempt(attempt=1, submission=given, role=given.roles[0]))
        row = Row(1, SOURCE.lane, 0, 1, "x")
        events += intakes.feed(FeedAttempt(attempt=1, rows=[row]))
        (broke,) = [event for event in events if isinstance(event, AttemptBroke)]
        assert broke.error.code is ErrorCode.ENGINE_ERROR
        assert "secret" not in broke.error.message
        other = submission(text="go")
        assert intakes.start(StartAttempt(attempt=2, submission=other, role=other.roles[0])) == [
            AttemptStarted(attempt=2),
            InputClosed(attempt=2),
        ]
        intakes.close()
