"""One suite for every engine: what `engines/base.py` promises, on the real thing.

An engine joins by a file `case_<name>.py` beside this one, with its `CASE`.
"""

import pytest

from stagemesh.errors import MeshError
from stagemesh.media import Modality
from stagemesh.outcome import ErrorCode, is_client_error
from tests.contract.engines.bench import Bench
from tests.contract.engines.case import for_cases, work

pytestmark = [pytest.mark.contract, pytest.mark.asyncio(loop_scope="session")]

LAG_S_MAX = 1.0


async def test_every_lane_ends_once_and_last(bench: Bench) -> None:
    number = bench.submit(bench.case.usual)
    await bench.until_over(number)
    for modality in bench.case.wanted:
        lane = [piece for piece in bench.pieces[number] if piece.modality == modality]
        assert [piece.end is not None for piece in lane] == [False] * (len(lane) - 1) + [True]
    assert not any(piece.error for piece in bench.pieces[number])


async def test_what_it_gives_is_what_it_says_it_can_give(bench: Bench) -> None:
    capabilities = bench.engine.capabilities
    assert bench.case.wanted <= capabilities.output_modalities
    assert capabilities.slots >= 1
    number = bench.submit(bench.case.usual)
    await bench.until_over(number)
    assert all(units > 0 for units, _, _ in bench.result(number).values())


async def test_it_goes_on_after_a_loss_as_its_case_says(bench: Bench) -> None:
    assert bench.engine.capabilities.resume_contract is bench.case.contract


async def test_samples_and_images_are_counted_as_used(bench: Bench) -> None:
    number = bench.submit(bench.case.usual)
    await bench.until_over(number)
    units = {modality: found[0] for modality, found in bench.result(number).items()}
    ends = {piece.modality: piece.end for piece in bench.pieces[number] if piece.end}
    for modality, end in ends.items():
        if modality is Modality.AUDIO:
            assert end.usage.audio_output_samples == units[modality]
        if modality is Modality.IMAGE:
            assert end.usage.images == units[modality]
        assert end.usage.complete


async def test_attempts_at_once_do_not_disturb_each_other(bench: Bench) -> None:
    count = min(4, bench.engine.capabilities.slots)
    numbers = [bench.submit(bench.case.usual) for _ in range(count)]
    await bench.until_over(*numbers)
    if bench.engine.capabilities.deterministic:
        assert all(bench.result(number) == bench.result(numbers[0]) for number in numbers)
    assert bench.engine.load_report().running == 0


@for_cases(lambda case: case.lasting)
async def test_an_abort_is_answered_once_and_ends_it(bench: Bench) -> None:
    assert bench.case.lasting is not None
    number = bench.submit(bench.case.lasting, lasting=True)
    await bench.until(lambda: bench.pieces[number])
    bench.engine.abort(number)
    await bench.until_over(number)
    said = len(bench.pieces[number])
    errors = [piece.error.code for piece in bench.pieces[number] if piece.error]
    assert errors in ([ErrorCode.ABORTED], [])
    after = bench.submit(bench.case.usual)
    await bench.until_over(after)
    assert len(bench.pieces[number]) == said
    assert bench.engine.load_report().running == 0


async def test_an_abort_right_after_its_submit_is_answered(bench: Bench) -> None:
    number = bench.submit(bench.case.lasting or bench.case.usual, lasting=True)
    bench.engine.abort(number)
    await bench.until_over(number)


async def test_unknown_attempts_are_ignored(bench: Bench) -> None:
    bench.engine.abort(1_000_000)
    number = bench.submit(bench.case.usual)
    await bench.until_over(number)
    assert not bench.pieces[1_000_000]


@for_cases(lambda case: case.refused)
async def test_input_that_cannot_be_served_is_the_clients_error(bench: Bench) -> None:
    assert bench.case.refused is not None
    number = bench.next()
    try:
        bench.engine.submit(work(bench.case, number, bench.case.refused))
    except MeshError as error:
        code = error.info.code
    else:
        await bench.until_over(number)
        (code,) = [piece.error.code for piece in bench.pieces[number] if piece.error]
    assert is_client_error(code)
    after = bench.submit(bench.case.usual)
    await bench.until_over(after)
    assert not any(piece.error for piece in bench.pieces[after])


@for_cases(lambda case: case.chunkings)
async def test_how_streamed_input_is_cut_does_not_matter(bench: Bench) -> None:
    results = []
    for first, *rest in bench.case.chunkings:
        number = bench.submit(first, streamed=True)
        for piece in rest:
            bench.engine.append(number, piece)
        bench.engine.close_input(number)
        await bench.until_over(number)
        assert not any(piece.error for piece in bench.pieces[number])
        results.append(bench.result(number))
    assert all(result == results[0] for result in results)


@for_cases(lambda case: case.chunkings)
async def test_every_streamed_input_is_taken_and_told_once(bench: Bench) -> None:
    first, *rest = max(bench.case.chunkings, key=len)
    number = bench.submit(first, streamed=True)
    for piece in rest:
        bench.engine.append(number, piece)
    taken = len(rest) if bench.engine.capabilities.paces_input else 0
    await bench.until(lambda: sum(piece.taken for piece in bench.pieces[number]) == taken)
    bench.engine.close_input(number)
    await bench.until_over(number)
    assert sum(piece.taken for piece in bench.pieces[number]) == taken


async def test_steps_grow_while_it_works(bench: Bench) -> None:
    before = bench.engine.load_report().steps
    number = bench.submit(bench.case.usual)
    await bench.until_over(number)
    assert bench.engine.load_report().steps > before


async def test_the_event_loop_never_stands_still(bench: Bench) -> None:
    bench.lag_s = 0.0
    number = bench.submit(bench.case.usual)
    await bench.until_over(number)
    assert bench.lag_s < LAG_S_MAX
