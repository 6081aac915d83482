"""Control calls on vLLM: what its CPU build can do is done, and the rest is not declared."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import pytest_asyncio
from safetensors.numpy import save_file

from services.stage_worker.engines import find_engine
from stagemesh.control import (
    Adapter,
    Call,
    CollectiveCall,
    ControlKind,
    ListAdapters,
    LoadAdapter,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    StartProfile,
    StopProfile,
    UnloadAdapter,
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
HIDDEN, RANK = 576, 8


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A configured root with one adapter, which makes the model say something else."""
    folder = tmp_path_factory.mktemp("roots")
    adapter = folder / "loud"
    adapter.mkdir()
    config = {
        "peft_type": "LORA", "r": RANK, "lora_alpha": 64, "target_modules": ["q_proj"],
        "bias": "none", "task_type": "CAUSAL_LM", "base_model_name_or_path": "",
    }  # fmt: skip
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    drawn = np.random.default_rng(7)
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    tensors = {}
    for layer in range(10):
        for side, shape in (("A", (RANK, HIDDEN)), ("B", (HIDDEN, RANK))):
            tensors[name.format(layer, side)] = drawn.normal(size=shape).astype(np.float32)
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STAGEMESH_MODEL_ROOTS", str(folder))
        yield folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(roots: Path) -> AsyncIterator[Collector]:
    options = {
        **CASE.config.options,
        "enable_lora": True,
        "enable_sleep_mode": True,
        "max_lora_rank": RANK,
        "enable_prefix_caching": True,
        "profile_dir": str(roots.parent / "profiles"),
        "collective_calls": ["list_loras"],
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
    assert control.kinds == {
        ControlKind.KEEP, ControlKind.RESET_CACHE, ControlKind.ADAPTERS, ControlKind.PROFILE
    }  # fmt: skip
    assert control.sleep_tags == frozenset()
    assert control.collective_calls == {"list_loras"}


async def test_what_is_frozen_goes_on_after_what_it_had_given(found: Collector) -> None:
    """Which words follow may differ by a near tie: others run beside it now."""
    number = found.start(QUESTION, sampling=GREEDY)
    await found.until(lambda: len(found.pieces[number]) > 3)
    await found.engine.control(FREEZE)
    before, said = len(found.pieces[number]), found.text(number)
    late = found.start(QUESTION, sampling=GREEDY)
    await found.engine.control(CollectiveCall(name="list_loras"))  # It works all the while.
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


async def test_an_adapter_is_for_those_who_name_it(found: Collector, roots: Path) -> None:
    loud = Adapter(name="loud", path=str(roots / "loud"))
    outside = Adapter(name="out", path=str(roots.parent))
    assert await refused(found, LoadAdapter(adapter=outside)) is ErrorCode.INVALID_ARGUMENT
    await found.engine.control(LoadAdapter(adapter=loud))
    assert (await found.engine.control(ListAdapters())).adapters == (loud,)
    called = await found.engine.control(CollectiveCall(name="list_loras"))
    assert called.value == {"results": ["[1]"]}

    with_it = found.start(QUESTION, sampling=GREEDY, adapter="loud")
    without = found.start(QUESTION, sampling=GREEDY)
    unknown = found.start(QUESTION, sampling=GREEDY, adapter="quiet")
    await found.until_over(with_it, without, unknown)
    assert not found.text(with_it).startswith(BEGINNING)
    assert found.text(without).startswith(BEGINNING)
    error = found.pieces[unknown][-1].error
    assert error is not None
    assert (error.reason, error.param) == ("adapter_not_found", "adapter")

    await found.engine.control(UnloadAdapter(name="loud"))
    assert (await found.engine.control(ListAdapters())).adapters == ()
    assert await refused(found, UnloadAdapter(name="loud")) is ErrorCode.NOT_FOUND


async def test_a_profile_is_written_where_the_pool_says(found: Collector, roots: Path) -> None:
    assert await refused(found, StopProfile()) is ErrorCode.CONFLICT
    await found.engine.control(StartProfile())
    await found.run(QUESTION, sampling=Sampling(temperature=0.0, tokens_max=2))
    assert await refused(found, StartProfile()) is ErrorCode.CONFLICT
    await found.engine.control(StopProfile())
    assert list((roots.parent / "profiles").iterdir())
