"""What the vLLM engine promises beyond the suite for all engines; vLLM is loaded once."""

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import Mock

import psutil
import pytest
import pytest_asyncio
from jinja2 import TemplateError

from services.stage_worker.engines import find_engine
from services.stage_worker.engines.base import AudioInput, TextInput
from services.stage_worker.engines.vllm_steps import KNOWN_VERSIONS
from stagemesh.media import Sampling
from stagemesh.outcome import ErrorCode, FinishReason
from tests.contract.engines.case_vllm import CASE
from tests.helpers.engines import MODEL_MARKS, Collector, chat, collecting

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(CASE.missing()), reason=CASE.missing() or "all is there"),
    *MODEL_MARKS,
]

GREEDY = Sampling(temperature=0.0, tokens_max=40, ignore_eos=True)
QUESTION = chat("What is the capital of France?")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found() -> AsyncIterator[Collector]:
    async with collecting(find_engine("vllm")(CASE.config), load_s=CASE.load_s) as collector:
        yield collector


def unfinished(found: Collector) -> int:
    """Count what vLLM itself holds."""
    return int(found.engine._llm.get_num_unfinished_requests())  # type: ignore[attr-defined]


async def test_the_installed_vllm_is_one_whose_internals_were_read() -> None:
    import vllm  # noqa: PLC0415

    assert vllm.__version__.partition("+")[0] in KNOWN_VERSIONS


async def test_an_answer_is_right_and_counted(found: Collector) -> None:
    number = await found.run(QUESTION, sampling=Sampling(temperature=0.0, tokens_max=64))
    end = found.end(number)
    ids = [token for piece in found.pieces[number] for token in piece.ids or []]
    assert "Paris" in found.text(number)
    assert end.finish_reason is FinishReason.STOP
    assert end.usage.completion_tokens == len(ids)
    assert [piece.units for piece in found.pieces[number]] == [
        len(piece.ids or []) for piece in found.pieces[number]
    ]
    assert end.usage.prompt_tokens > 10


async def test_attempts_at_once_share_their_steps(found: Collector) -> None:
    before = found.engine.load_report().steps
    numbers = [found.start(chat(f"Count to {n}."), sampling=GREEDY) for n in range(8)]
    await found.until_over(*numbers)
    tokens = sum(found.end(number).usage.completion_tokens for number in numbers)
    steps = found.engine.load_report().steps - before
    assert tokens == 8 * 40
    assert steps < tokens / 4


async def test_whole_steps_and_public_generators_give_the_same_text(
    found: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_steps = await found.run(QUESTION, sampling=GREEDY)
    assert found.engine._sink is not None  # type: ignore[attr-defined]
    monkeypatch.setattr(found.engine, "_sink", None)
    publicly = await found.run(QUESTION, sampling=GREEDY)
    assert found.text(publicly) == found.text(by_steps)
    assert found.end(publicly).usage.completion_tokens == 40
    aborted = found.start(chat("Tell me a story."), sampling=Sampling(ignore_eos=True))
    await found.until(lambda: len(found.pieces[aborted]) > 3)
    found.engine.abort(aborted)
    await found.until_over(aborted)
    assert found.error(aborted).code is ErrorCode.ABORTED
    assert unfinished(found) == 0


async def test_an_abort_at_any_moment_leaves_nothing_in_vllm(found: Collector) -> None:
    numbers = []
    for turns in range(40):
        number = found.start(chat("Tell me a story."), sampling=Sampling(ignore_eos=True))
        numbers.append(number)
        for _ in range(turns):
            await asyncio.sleep(0)
        found.engine.abort(number)
    await found.until_over(*numbers)
    assert {found.error(number).code for number in numbers} == {ErrorCode.ABORTED}
    assert unfinished(found) == 0
    assert found.engine.load_report().running == 0


async def test_an_aborted_attempt_says_what_it_used(found: Collector) -> None:
    number = found.start(chat("Tell me a story."), sampling=Sampling(ignore_eos=True))
    await found.until(lambda: len(found.pieces[number]) > 5)
    found.engine.abort(number)
    await found.until_over(number)
    last = found.last(number)
    assert last is not None
    assert last.end is not None
    assert last.end.usage.completion_tokens == sum(piece.units for piece in found.pieces[number])


async def test_an_explicit_seed_repeats_a_choice_and_another_seed_does_not(
    found: Collector,
) -> None:
    sampling = Sampling(temperature=1.0, tokens_max=24, ignore_eos=True)
    story = chat("Tell me a story.")
    seeds = [11, 11, 12, 13]
    texts = [
        found.text(await found.run(story, sampling=sampling, seed=seed, seed_explicit=True))
        for seed in seeds
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


async def test_choices_without_a_seed_differ(found: Collector) -> None:
    sampling = Sampling(temperature=1.0, tokens_max=24, ignore_eos=True)
    numbers = [found.start(chat("Tell me a story."), sampling=sampling) for _ in range(3)]
    await found.until_over(*numbers)
    assert len({found.text(number) for number in numbers}) == 3


async def test_a_stop_string_ends_an_answer_before_it(found: Collector) -> None:
    number = await found.run(
        QUESTION, sampling=Sampling(temperature=0.0, tokens_max=40, stop=(" France",))
    )
    assert found.text(number) == "The capital of"
    assert found.end(number).stop_match == " France"
    assert found.end(number).finish_reason is FinishReason.STOP


async def test_an_answer_is_at_least_as_long_as_asked(found: Collector) -> None:
    number = await found.run(
        QUESTION, sampling=Sampling(temperature=0.0, tokens_max=40, tokens_min=30)
    )
    assert found.end(number).usage.completion_tokens >= 30


async def test_an_answer_is_cut_to_the_context(found: Collector) -> None:
    prompt = TextInput(text="word " * 2030)
    number = await found.run(prompt, sampling=Sampling(tokens_max=500, ignore_eos=True))
    end = found.end(number)
    assert end.finish_reason is FinishReason.LENGTH
    assert end.usage.prompt_tokens + end.usage.completion_tokens == 2048


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (Sampling(temperature=-1.0), "temperature"),
        (Sampling(top_p=3.0), "top_p"),
        (Sampling(repetition_penalty=-1.0), ""),
        (Sampling(stop=("",)), ""),
    ],
)
async def test_parameters_that_vllm_refuses_are_the_clients_error(
    found: Collector, sampling: Sampling, param: str
) -> None:
    number = await found.run(QUESTION, sampling=sampling)
    assert found.error(number).code is ErrorCode.INVALID_ARGUMENT
    assert found.error(number).param == param


async def test_input_that_it_cannot_read_is_the_clients_error(found: Collector) -> None:
    too_long = await found.run(TextInput(text="word " * 3000))
    empty = await found.run(TextInput(text=""))
    audio = await found.run(AudioInput(data=b"", media_type="audio/wav"))
    assert found.error(too_long).reason == "context_length_exceeded"
    assert found.error(too_long).param == "messages"
    assert found.error(empty).code is ErrorCode.INVALID_ARGUMENT
    assert found.error(audio).code is ErrorCode.UNSUPPORTED


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (TypeError("no such type"), ErrorCode.ENGINE_ERROR),
        (TemplateError("no such role"), ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_what_a_template_raises_fails_its_attempt_only(
    found: Collector, monkeypatch: pytest.MonkeyPatch, raised: Exception, code: ErrorCode
) -> None:
    with monkeypatch.context() as patch:
        tokenizer = found.engine._tokenizer  # type: ignore[attr-defined]
        patch.setattr(tokenizer, "apply_chat_template", Mock(side_effect=raised))
        number = await found.run(QUESTION)
    assert found.error(number).code is code
    found.end(await found.run(QUESTION, sampling=GREEDY))


async def test_a_core_that_dies_while_nothing_runs_breaks_the_engine(found: Collector) -> None:
    """Comes last: it needs the engine no more."""
    assert found.engine.load_report().running == 0
    cores = [
        child
        for child in psutil.Process().children()
        if any("EngineCore" in part for part in [child.name(), *child.cmdline()])
    ]
    assert len(cores) == 1
    cores[0].kill()
    error = await found.until_broken()
    assert type(error).__name__ == "EngineDeadError"
