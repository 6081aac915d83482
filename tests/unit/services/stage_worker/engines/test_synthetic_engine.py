import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from services.stage_worker.engines.base import (
    EngineConfig,
    Interaction,
    Piece,
    Resume,
    ResumeContract,
    TextInput,
    Work,
)
from services.stage_worker.engines.synthetic_engine import SyntheticEngine, create
from stagemesh.errors import BadSettings, MeshError
from stagemesh.media import Modality, Params
from stagemesh.outcome import ErrorCode


def engine_of(**options: Any) -> SyntheticEngine:
    config = EngineConfig(pool="pool", replica_id="r", model="", options=options)
    return SyntheticEngine(config)


def work(attempt: int, wanted: Modality = Modality.TEXT, **script: Any) -> Work:
    return Work(
        attempt=attempt,
        request_id="req_a",
        stage="stage",
        companion="",
        choice=0,
        seed=0,
        seed_explicit=False,
        params=Params(),
        wanted=frozenset({wanted}),
        ids_wanted=False,
        input=TextInput(text=f"#synthetic {json.dumps(script)}"),
    )


async def next_step(steps: AsyncIterator[list[Piece]]) -> list[Piece]:
    async with asyncio.timeout(5):
        return await anext(steps)


def texts(step: list[Piece]) -> list[tuple[int, str]]:
    return [(piece.attempt, piece.text) for piece in step]


async def test_what_is_due_together_is_one_step() -> None:
    engine = engine_of()
    for attempt in (1, 2, 3):
        engine.submit(work(attempt, tokens=2))
    steps = engine.outputs()
    assert texts(await next_step(steps)) == [(1, " w0"), (2, " w0"), (3, " w0")]
    assert texts(await next_step(steps)) == [(1, " w1"), (2, " w1"), (3, " w1")]
    assert engine.load_report().running == 0
    assert engine.load_report().steps == 2


async def test_it_tells_what_it_took_with_the_step_or_when_nothing_will_come_of_it() -> None:
    engine = engine_of()
    engine.submit(msgspec.structs.replace(work(1, tokens=1), streamed=True))
    engine.append(1, TextInput(text="", units=1))
    steps = engine.outputs()
    assert [(piece.text, piece.taken) for piece in await next_step(steps)] == [(" w0", 0), ("", 1)]
    engine.append(1, TextInput(text="", units=1))
    assert [(piece.text, piece.taken) for piece in await next_step(steps)] == [("", 1)]


async def test_an_abort_is_one_piece_with_what_was_used_so_far() -> None:
    engine = engine_of()
    engine.submit(work(1, tokens=9))
    steps = engine.outputs()
    await next_step(steps)
    engine.abort(1)
    engine.abort(1)
    (piece,) = await next_step(steps)
    assert piece.error is not None
    assert piece.error.code is ErrorCode.ABORTED
    assert piece.end is not None
    assert piece.end.usage.completion_tokens == 1


async def test_a_script_may_ignore_aborts() -> None:
    engine = engine_of()
    engine.submit(work(1, tokens=2, ignore_abort=True))
    engine.abort(1)
    steps = engine.outputs()
    assert texts(await next_step(steps)) == [(1, " w0")]


async def test_a_failure_comes_after_its_units_with_its_code() -> None:
    engine = engine_of()
    engine.submit(work(1, tokens=9, batch=5, fail_at=2, fail_code="stalled"))
    steps = engine.outputs()
    assert texts(await next_step(steps)) == [(1, " w0 w1")]
    (piece,) = await next_step(steps)
    assert piece.error is not None
    assert piece.error.code is ErrorCode.STALLED
    assert engine.load_report().running == 0


async def test_what_hangs_says_nothing_and_disturbs_nobody() -> None:
    engine = engine_of()
    engine.submit(work(1, hang_at=0))
    engine.submit(work(2, tokens=2))
    steps = engine.outputs()
    assert texts(await next_step(steps) + await next_step(steps)) == [(2, " w0"), (2, " w1")]
    assert engine.load_report().running == 1
    engine.abort(1)
    assert [piece.attempt for piece in await next_step(steps)] == [1]


async def test_a_refusal_is_raised_with_its_code() -> None:
    engine = engine_of()
    with pytest.raises(MeshError) as caught:
        engine.submit(work(1, reject="draining"))
    assert caught.value.info.code is ErrorCode.DRAINING
    assert engine.load_report().running == 0


async def test_what_the_pool_does_not_give_is_refused() -> None:
    with pytest.raises(MeshError) as caught:
        engine_of(gives="text").submit(work(1, Modality.AUDIO))
    assert caught.value.info.code is ErrorCode.UNSUPPORTED


@pytest.mark.parametrize(
    ("options", "contract"),
    [
        ({}, ResumeContract.TOKENS),
        ({"gives": "audio"}, ResumeContract.REPLAY),
        ({"gives": "text,image"}, ResumeContract.REPLAY),
        ({"gives": "audio", "contract": "per_input"}, ResumeContract.PER_INPUT),
        ({"contract": "none"}, ResumeContract.NONE),
    ],
)
def test_how_it_goes_on_follows_from_what_it_gives_or_from_its_options(
    options: dict[str, str], contract: ResumeContract
) -> None:
    assert engine_of(**options).capabilities.resume_contract is contract


def test_a_contract_that_is_none_is_refused() -> None:
    with pytest.raises(BadSettings):
        engine_of(contract="sometimes")


async def test_ids_that_no_script_gives_are_refused() -> None:
    begun = Resume(contract=ResumeContract.TOKENS, positions={Modality.TEXT: 2}, token_ids=(0, 7))
    with pytest.raises(MeshError) as caught:
        engine_of().submit(msgspec.structs.replace(work(1, tokens=9), resume=begun))
    assert caught.value.info.code is ErrorCode.PROTOCOL


async def test_outputs_end_when_it_is_closed() -> None:
    engine = engine_of()
    consumer = asyncio.create_task(anext(engine.outputs(), None))
    await asyncio.sleep(0)
    await engine.close()
    assert await consumer is None


async def test_unknown_attempts_are_ignored() -> None:
    engine = engine_of()
    engine.append(9, TextInput(text="x", units=1))
    engine.close_input(9)
    engine.abort(9)
    assert engine.load_report().running == 0


async def test_loading_takes_no_time() -> None:
    said: list[str] = []
    card = await engine_of().load(said.append)
    assert card.model == "synthetic"
    assert said


@pytest.mark.parametrize("gives", ["text,audio", ["text", "audio"], " TEXT , Audio "])
def test_modalities_may_be_a_list_or_have_commas(gives: object) -> None:
    assert engine_of(gives=gives).capabilities.output_modalities == {
        Modality.TEXT,
        Modality.AUDIO,
    }


@pytest.mark.parametrize("options", [{"gives": "smell"}, {"slot": 4}, {"slots": "many"}])
def test_bad_options_are_refused_by_name(options: dict[str, object]) -> None:
    config = EngineConfig(pool="pool", replica_id="r", model="", options=options)
    with pytest.raises(BadSettings, match="pool"):
        create(config)


async def frames_of(engine: SyntheticEngine, count: int) -> list[bytes]:
    """Give the pictures of the next steps."""
    steps = engine.outputs()
    found: list[bytes] = []
    while len(found) < count:
        found += [piece.body.inline for piece in await next_step(steps) if piece.body is not None]
    return found


async def test_another_prompt_colours_the_next_frames_and_those_of_another_attempt() -> None:
    plain, changed, again = (engine_of(gives="video") for _ in range(3))
    for engine in (plain, changed):
        engine.submit(work(1, Modality.VIDEO, tokens=4))
    before = await frames_of(plain, 4)
    first = await frames_of(changed, 2)
    assert changed.interact(1, "brighter") == 2
    frames = [*first, *await frames_of(changed, 2)]
    assert frames[:2] == before[:2]
    assert frames[2] != before[2]
    applied = (Interaction(interaction_id="p", text="brighter", applied_at=2),)
    again.submit(msgspec.structs.replace(work(1, Modality.VIDEO, tokens=4), interactions=applied))
    assert await frames_of(again, 4) == frames


async def test_only_a_video_that_is_being_made_takes_another_prompt() -> None:
    engine = engine_of()
    with pytest.raises(MeshError) as late:
        engine.interact(1, "x")
    assert late.value.info.code is ErrorCode.CONFLICT
    engine.submit(work(1, tokens=1))
    with pytest.raises(MeshError) as wrong:
        engine.interact(1, "x")
    assert wrong.value.info.code is ErrorCode.UNSUPPORTED
    assert not engine.capabilities.interactions
    assert engine_of(gives="video").capabilities.interactions
