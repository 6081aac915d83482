"""What the tests of real engines have in common."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, cast

import pytest
import pytest_asyncio

from services.stage_worker.engines import find_engine
from tests.contract.engines.bench import Bench
from tests.contract.engines.case import EngineCase

_VLLM_ON_A_SMALL_CPU: Final = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@pytest.fixture(scope="session", autouse=True)
def vllm_on_a_small_cpu() -> Iterator[None]:
    """Let vLLM be content with one thread and little memory, unless somebody decided otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _VLLM_ON_A_SMALL_CPU.items():
            if name not in os.environ:
                patch.setenv(name, value)
        yield


@pytest.fixture(scope="module", autouse=True)
def memory_given_back() -> Iterator[None]:
    """Free each module's engines before the next module loads its own."""
    yield
    gc.collect()


def cases() -> Iterator[object]:
    """Find every engine that has told its case."""
    for path in sorted(Path(__file__).parent.glob("case_*.py")):
        name = path.stem.removeprefix("case_")
        case: EngineCase = import_module(f"tests.contract.engines.{path.stem}").CASE
        yield pytest.param((name, case), id=name, marks=case.marks)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the engines that a test of the suite says nothing about."""
    left_out = [item for item in items if not _applies(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _applies(item)]


def _applies(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("for_cases")
    if mark is None or not isinstance(item, pytest.Function):
        return True
    _, case = cast("tuple[str, EngineCase]", item.callspec.params["bench"])
    return bool(mark.kwargs["applies"](case))


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=cases())
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """Load each engine once for all the modules of the suite."""
    name, case = request.param
    if why := case.missing():
        pytest.skip(why)
    engine = find_engine(name)(case.config)
    async with asyncio.timeout(case.load_s):
        card = await engine.load(lambda line: None)
    assert card.model
    found = Bench(engine, case)
    tasks = [asyncio.create_task(found.consume()), asyncio.create_task(found.watch())]
    yield found
    await engine.close()
    async with asyncio.timeout(10):
        await tasks[0]  # `outputs` ends by itself once the engine is closed.
    tasks[1].cancel()
    with suppress(asyncio.CancelledError):
        await tasks[1]
