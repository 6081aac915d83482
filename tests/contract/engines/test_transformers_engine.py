"""What the transformers engine promises beyond the suite."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from safetensors.numpy import load

from services.stage_worker.engines import find_engine
from services.stage_worker.engines.base import TextInput
from stagemesh.media import Modality
from tests.contract.engines.case_transformers import CASE
from tests.helpers.engines import MODEL_MARKS, Collector, collecting

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(CASE.missing()), reason=CASE.missing() or "all is there"),
    *MODEL_MARKS,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encoder() -> AsyncIterator[Collector]:
    async with collecting(find_engine("transformers")(CASE.config)) as collector:
        yield collector


async def test_a_text_becomes_one_row_per_position(encoder: Collector) -> None:
    number = await encoder.run(TextInput(text="a red star"), wanted=Modality.TENSOR)
    tensors = load(encoder.data(number))
    assert tensors["hidden"].shape[:2] == (1, encoder.engine.capabilities.context_tokens_max)
    assert tensors["pooled"].shape == (1, tensors["hidden"].shape[2])
    assert 3 <= encoder.end(number).usage.prompt_tokens <= 6


@pytest.mark.parametrize("text", ["", "star " * 500, "no such words 😀"])
async def test_any_text_is_encoded_to_the_same_shape(encoder: Collector, text: str) -> None:
    usual = await encoder.run(TextInput(text="a red star"), wanted=Modality.TENSOR)
    number = await encoder.run(TextInput(text=text), wanted=Modality.TENSOR)
    shapes = [load(encoder.data(one))["hidden"].shape for one in (usual, number)]
    assert shapes[0] == shapes[1]


async def test_texts_that_wait_are_encoded_in_one_step(encoder: Collector) -> None:
    before = encoder.engine.load_report().steps
    numbers = [
        encoder.start(TextInput(text=f"a star {n}"), wanted=Modality.TENSOR) for n in range(16)
    ]
    await encoder.until_over(*numbers)
    assert encoder.engine.load_report().steps - before <= 4
