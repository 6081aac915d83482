import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from grpc import aio

from stagemesh.link.pump import Backoff, Dialer, LinkPolicy
from stagemesh.link.pump.greeting import greet
from tests.helpers.link_ends import WAIT_S, Recorder, hello, ping


class Call:
    """A call that ends once its server has said its part."""

    def __init__(self, said: list[object]) -> None:
        self._said = said
        self.cancelled = False

    async def __aiter__(self) -> AsyncIterator[object]:
        """See `grpc.aio`."""
        for message in self._said:
            if message is aio.EOF:
                return
            yield message
        await asyncio.Event().wait()

    async def write(self, _: object) -> None:
        """See `grpc.aio`."""

    def cancel(self) -> None:
        """See `grpc.aio`."""
        self.cancelled = True


class Address:
    """Answers each dial with the next script; the last one holds."""

    def __init__(self, *scripts: list[object]) -> None:
        self._scripts = [*scripts]
        self.calls: list[Call] = []
        self.last = asyncio.Event()

    def attach(self) -> Any:
        """See `Attach`."""
        self.calls.append(Call(self._scripts.pop(0)))
        if not self._scripts:
            self.last.set()
        return self.calls[-1]


def dialer_of(address: Address, events: Recorder) -> Dialer:
    return Dialer(
        cast(Any, address.attach),
        hello=hello,
        ping=ping,
        events=events,
        policy=LinkPolicy(),
        backoff=Backoff(first_s=0.0, longest_s=0.0),
        name="10.0.0.1:7000",
    )


async def run_to_the_last(dialer: Dialer, address: Address) -> None:
    task = asyncio.create_task(dialer.run())
    async with asyncio.timeout(WAIT_S):
        await address.last.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_it_dials_again_and_again_and_closes_every_call() -> None:
    events = Recorder()
    served: list[object] = [greet(hello("server")), aio.EOF]
    address = Address([aio.EOF], [*served], [aio.EOF], [aio.EOF], [*served], [])
    dialer = dialer_of(address, events)
    await run_to_the_last(dialer, address)
    assert len(address.calls) == 6
    assert all(call.cancelled for call in address.calls)
    assert events.reasons == ["peer_closed", "peer_closed"]
    assert dialer.link is None


async def test_a_link_that_was_attached_ends_the_run_of_failures() -> None:
    events = Recorder()
    address = Address([aio.EOF], [aio.EOF], [greet(hello("server")), aio.EOF], [aio.EOF], [])
    dialer = dialer_of(address, events)
    await run_to_the_last(dialer, address)
    assert dialer.failures == 1


async def test_the_same_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    address = Address([aio.EOF], [aio.EOF], [greet(hello("server")), aio.EOF], [aio.EOF], [])
    await run_to_the_last(dialer_of(address, Recorder()), address)
    assert [record.message for record in caplog.records] == ["no_link", "no_link"]
    assert vars(caplog.records[0])["address"] == "10.0.0.1:7000"
    assert vars(caplog.records[0])["reason"] == "peer_closed"
