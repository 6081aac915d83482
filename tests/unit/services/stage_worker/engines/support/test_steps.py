import asyncio
import threading

import pytest

from services.stage_worker.engines.base import Piece
from services.stage_worker.engines.support.steps import Steps


def piece(number: int) -> Piece:
    return Piece(attempt=number)


async def read_all(steps: Steps) -> list[int]:
    return [piece.attempt async for step in steps.read() for piece in step]


async def test_pieces_of_many_threads_are_read_in_each_thread_s_order() -> None:
    steps = Steps()
    steps.bind()

    def write(first: int) -> None:
        for number in range(first, first + 500):
            steps.put([piece(number)])

    reader = asyncio.create_task(read_all(steps))
    async with asyncio.TaskGroup() as writers:
        for first in (0, 1000, 2000):
            writers.create_task(asyncio.to_thread(write, first))
    steps.close()
    read = await reader
    for first in (0, 1000, 2000):
        mine = [number for number in read if first <= number < first + 1000]
        assert mine == list(range(first, first + 500))
    assert steps.count == 1500


async def test_what_waits_comes_as_one_list() -> None:
    steps = Steps()
    steps.bind()
    steps.put([piece(1), piece(2)])
    steps.put([])
    steps.put([piece(3)])
    reader = steps.read()
    assert [piece.attempt for piece in await anext(reader)] == [1, 2, 3]
    assert steps.count == 3


async def test_what_came_before_a_failure_is_read_first() -> None:
    steps = Steps()
    steps.bind()
    steps.put([piece(1)])
    steps.fail(RuntimeError("first"))
    steps.fail(RuntimeError("second"))
    reader = steps.read()
    assert len(await anext(reader)) == 1
    with pytest.raises(RuntimeError, match="first"):
        await anext(reader)


async def test_a_reader_that_waits_is_ended_from_another_thread() -> None:
    steps = Steps()
    steps.bind()
    reader = asyncio.create_task(read_all(steps))
    await asyncio.sleep(0)
    threading.Thread(target=steps.close).start()
    async with asyncio.timeout(5):
        assert await reader == []


def test_a_piece_for_a_loop_that_is_gone_harms_nobody() -> None:
    steps = Steps()

    async def bind() -> None:
        steps.bind()

    asyncio.run(bind())
    thread = threading.Thread(target=steps.put, args=([piece(1)],))
    thread.start()
    thread.join(5)
    assert steps.count == 1
