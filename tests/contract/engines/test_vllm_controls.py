"""Control calls on vLLM: what its CPU build can do is done, and the rest is not declared."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from services.stage_worker.engines import find_engine
from stagemesh.control import (
    Call,
    CollectiveCall,
    ControlKind,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    StartProfile,
    StopProfile,
)
from stagemesh.errors import MeshError
from stagemesh.media import Sampling
from stagemesh.outcome import ErrorCode
from tests.contract.engines.case_vllm import CASE
from tests.helpers.engines import MODEL_MARKS, Collector, chat, collecting

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(CASE.missing()), reason=CASE.missing() or "all is there"),
    *MODEL_MARKS,
]

GREEDY = Sampling(temperature=0.0, tokens_max=40, ignore_eos=True)
QUESTION = chat("What is the capital of France?")
BEGINNING = "The capital of France is Paris"
FREEZE = Pause(mode=PauseMode.KEEP)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(profiles: Path) -> AsyncIterator[Collector]:
    options = {
        **CASE.config.options,
        "enable_lora": True,
        "enable_sleep_mode": True,
        "enable_prefix_caching": True,
        "profile_dir": str(profiles),
        "collective_calls": ["check_health"],
    }
    config = msgspec.structs.replace(CASE.config, options=options)
    async with collecting(find_engine("vllm")(config), load_s=CASE.load_s) as collector:
        yield collector


async def refused(found: Collector, call: Call) -> ErrorCode:
    with pytest.raises(MeshError) as caught:
        await found.engine.control(call)
    return caught.value.info.code


async def test_what_the_cpu_build_can_do_is_declared_and_nothing_else(found: Collector) -> None:
    control = found.engine.capabilities.control
    assert control.kinds == {ControlKind.KEEP, ControlKind.RESET_CACHE, ControlKind.PROFILE}
    assert control.sleep_tags == frozenset()
    assert control.collective_calls == {"check_health"}


async def test_what_is_frozen_goes_on_after_what_it_had_given(found: Collector) -> None:
    """Which words follow may differ by a near tie: others run beside it now."""
    number = found.start(QUESTION, sampling=GREEDY)
    await found.until(lambda: len(found.pieces[number]) > 3)
    await found.engine.control(FREEZE)
    before, said = len(found.pieces[number]), found.text(number)
    late = found.start(QUESTION, sampling=GREEDY)
    await found.engine.control(CollectiveCall(name="check_health"))  # It works all the while.
    assert len(found.pieces[number]) <= before + 1
    assert found.pieces[late] == []
    await found.engine.control(Resume())
    await found.until_over(number, late)
    assert found.text(number).startswith(said)
    for one in (number, late):
        assert found.text(one).startswith(BEGINNING)
        assert found.end(one).usage.completion_tokens == 40


async def test_what_is_frozen_may_be_aborted(found: Collector) -> None:
    number = found.start(QUESTION, sampling=GREEDY)
    await found.until(lambda: bool(found.pieces[number]))
    await found.engine.control(FREEZE)
    found.engine.abort(number)
    await found.until_over(number)
    await found.engine.control(Resume())
    error = found.pieces[number][-1].error
    assert error is not None
    assert error.code is ErrorCode.ABORTED


async def test_the_cache_is_forgotten(found: Collector) -> None:
    await found.run(QUESTION, sampling=GREEDY)
    await found.engine.control(ResetCache())


async def test_a_profile_is_written_where_the_pool_says(found: Collector, profiles: Path) -> None:
    assert await refused(found, StopProfile()) is ErrorCode.CONFLICT
    await found.engine.control(StartProfile())
    await found.run(QUESTION, sampling=Sampling(temperature=0.0, tokens_max=2))
    assert await refused(found, StartProfile()) is ErrorCode.CONFLICT
    await found.engine.control(StopProfile())
    assert await asyncio.to_thread(os.listdir, profiles)
