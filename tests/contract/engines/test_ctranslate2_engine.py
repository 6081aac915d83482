"""What the CTranslate2 engine promises beyond the suite."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.stage_worker.engines import find_engine
from services.stage_worker.engines.base import AudioInput, TextInput
from stagemesh.errors import MeshError
from stagemesh.media import Sampling
from stagemesh.outcome import ErrorCode, FinishReason
from tests.contract.engines.case_ctranslate2 import CASE
from tests.helpers.engines import MODEL_MARKS, Collector, chat, collecting

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(CASE.missing()), reason=CASE.missing() or "all is there"),
    *MODEL_MARKS,
]

QUESTION = chat("What is the capital of France?")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found() -> AsyncIterator[Collector]:
    async with collecting(find_engine("ctranslate2")(CASE.config)) as collector:
        yield collector


async def test_an_answer_is_right_and_counted_token_by_token(found: Collector) -> None:
    number = await found.run(QUESTION, sampling=Sampling(temperature=0.0))
    end = found.end(number)
    assert found.text(number) == "The capital of France is Paris."
    assert end.finish_reason is FinishReason.STOP
    assert end.usage.completion_tokens == len(found.pieces[number])
    assert all(piece.units == 1 == len(piece.ids or []) for piece in found.pieces[number])


async def test_the_end_of_a_text_is_passed_by_if_so_asked(found: Collector) -> None:
    sampling = Sampling(temperature=0.0, tokens_max=30, ignore_eos=True)
    number = await found.run(QUESTION, sampling=sampling)
    assert found.end(number).usage.completion_tokens == 30
    assert found.end(number).finish_reason is FinishReason.LENGTH


async def test_a_stop_string_ends_an_answer_before_it(found: Collector) -> None:
    number = await found.run(QUESTION, sampling=Sampling(temperature=0.0, stop=(" France",)))
    assert found.text(number) == "The capital of"
    assert found.end(number).stop_match == " France"


async def test_an_answer_is_at_least_as_long_as_asked(found: Collector) -> None:
    number = await found.run(
        QUESTION, sampling=Sampling(temperature=0.0, tokens_max=40, tokens_min=20)
    )
    assert found.end(number).usage.completion_tokens >= 20


async def test_an_answer_is_cut_to_the_context(found: Collector) -> None:
    prompt = TextInput(text="word " * 2030)
    number = await found.run(
        prompt, sampling=Sampling(tokens_max=500, tokens_min=400, ignore_eos=True)
    )
    end = found.end(number)
    assert end.finish_reason is FinishReason.LENGTH
    assert end.usage.prompt_tokens + end.usage.completion_tokens == 2048


async def test_sampled_answers_differ(found: Collector) -> None:
    sampling = Sampling(temperature=1.0, tokens_max=24, ignore_eos=True)
    numbers = [found.start(chat("Tell me a story."), sampling=sampling) for _ in range(3)]
    await found.until_over(*numbers)
    assert len({found.text(number) for number in numbers}) == 3


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (Sampling(frequency_penalty=1.0), "frequency_penalty"),
        (Sampling(min_p=0.1), "min_p"),
        (Sampling(stop=("",)), "stop"),
    ],
)
async def test_parameters_that_it_lacks_are_refused_at_once(
    found: Collector, sampling: Sampling, param: str
) -> None:
    with pytest.raises(MeshError) as caught:
        found.start(QUESTION, sampling=sampling)
    assert caught.value.info.param == param


async def test_input_that_it_cannot_read_is_the_clients_error(found: Collector) -> None:
    too_long = await found.run(TextInput(text="word " * 3000))
    empty = await found.run(TextInput(text=""))
    audio = await found.run(AudioInput(data=b"", media_type="audio/wav"))
    assert found.error(too_long).reason == "context_length_exceeded"
    assert found.error(empty).code is ErrorCode.INVALID_ARGUMENT
    assert found.error(audio).code is ErrorCode.UNSUPPORTED
