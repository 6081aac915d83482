"""One suite for every engine: what was begun elsewhere goes on without a gap or a repeat.

Each test stops listening at some point of an attempt, as its owner would after a loss, and lets the
engine go on by its own contract.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from services.stage_worker.core import Replays
from services.stage_worker.driver.outgoing import counted_bytes
from services.stage_worker.engines.base import Piece, Resume, ResumeContract, TextInput
from stagemesh.errors import MeshError
from stagemesh.link.core import LaneJournal
from stagemesh.media import Modality, Params, Sampling, lane_of
from stagemesh.outcome import End, ErrorCode, FinishReason
from stagemesh.payload import PayloadStore
from tests.contract.engines.bench import Bench
from tests.contract.engines.case import for_cases, work
from tests.helpers.worker_core import STAGE, submission

pytestmark = [pytest.mark.contract, pytest.mark.asyncio(loop_scope="session")]

SHARES: Final = (0.0, 0.3, 0.6, 0.95)


def counted(piece: Piece) -> bytes:
    return counted_bytes(piece, PayloadStore.digest_at_put)


def goes_on_by(contract: ResumeContract) -> pytest.MarkDecorator:
    """Run a test with the engines of one contract."""
    return for_cases(lambda case: case.contract is contract)


async def run(
    bench: Bench, *, params: Params | None = None, resume: Resume | None = None
) -> list[Piece]:
    """Run the usual input to its end."""
    number = bench.next()
    bench.engine.submit(work(bench.case, number, bench.case.usual, params=params, resume=resume))
    await bench.until_over(number)
    return bench.pieces[number]


def after(ids: Sequence[int]) -> Resume:
    return Resume(
        contract=ResumeContract.TOKENS,
        positions={Modality.TEXT: len(ids)},
        token_ids=tuple(ids),
    )


def ids_of(pieces: Sequence[Piece]) -> list[int]:
    return [id_ for piece in pieces for id_ in piece.ids or ()]


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def end_of(pieces: Sequence[Piece]) -> End:
    assert not any(piece.error for piece in pieces), pieces
    (end,) = [piece.end for piece in pieces if piece.end]
    return end


@goes_on_by(ResumeContract.TOKENS)
@pytest.mark.parametrize("share", SHARES)
async def test_tokens_go_on_without_a_gap_or_a_repeat(bench: Bench, share: float) -> None:
    assert bench.case.vocabulary is not None
    whole = await run(bench)
    begun = whole[: int(len(whole) * share)]
    rest = await run(bench, resume=after(ids_of(begun)) if begun else None)
    ids = ids_of(begun) + ids_of(rest)
    assert text_of(begun) + text_of(rest) == bench.case.vocabulary.told(ids)
    usage = end_of(rest).usage
    assert usage.completion_tokens == len(ids)
    assert usage.prompt_tokens == end_of(whole).usage.prompt_tokens
    assert len(ids) <= (bench.case.params.sampling.tokens_max or len(ids))
    if bench.engine.capabilities.deterministic:
        assert ids == ids_of(whole)


@goes_on_by(ResumeContract.TOKENS)
async def test_half_a_character_is_completed_or_given_up_once(bench: Bench) -> None:
    vocabulary = bench.case.vocabulary
    assert vocabulary is not None
    said = vocabulary.encode("Here is a fish: \N{FISH}\N{TROPICAL FISH}")
    for cut in range(len(said) - 5, len(said)):
        begun = said[:cut]
        rest = await run(bench, resume=after(begun))
        whole = vocabulary.told(begun + ids_of(rest))
        assert vocabulary.told(begun) + text_of(rest) == whole


@goes_on_by(ResumeContract.TOKENS)
@pytest.mark.parametrize("share", (0.3, 0.6))
async def test_a_stop_string_is_found_across_the_cut(bench: Bench, share: float) -> None:
    assert bench.case.vocabulary is not None
    ids = ids_of(await run(bench))
    cut = max(1, int(len(ids) * share))
    text, at = bench.case.vocabulary.told(ids), len(bench.case.vocabulary.told(ids[:cut]))
    stop = text[at - 2 : at + 2]
    params = msgspec.structs.replace(
        bench.case.params,
        sampling=msgspec.structs.replace(bench.case.params.sampling, stop=(stop,)),
    )
    whole = await run(bench, params=params)
    begun: list[Piece] = []
    for piece in whole:
        if piece.end is None and len(ids_of(begun)) < cut:
            begun.append(piece)
    rest = await run(bench, params=params, resume=after(ids_of(begun)))
    assert text_of(begun) + text_of(rest) == text_of(whole) == text[: text.index(stop)]
    assert end_of(rest).stop_match == end_of(whole).stop_match == stop


@goes_on_by(ResumeContract.TOKENS)
async def test_tokens_that_end_the_answer_end_it_at_once(bench: Bench) -> None:
    whole = await run(bench)
    ids = ids_of(whole)
    (last,) = await run(bench, resume=after(ids))
    assert (last.units, last.text) == (0, "")
    assert last.end is not None
    assert last.end.finish_reason is end_of(whole).finish_reason
    assert last.end.usage.completion_tokens == len(ids)
    limited = Params(sampling=Sampling(tokens_max=3, temperature=0.0))
    (last,) = await run(bench, params=limited, resume=after(ids[:3]))
    assert last.end is not None
    assert last.end.finish_reason is FinishReason.LENGTH


@goes_on_by(ResumeContract.TOKENS)
async def test_what_could_not_be_counted_is_not_gone_on_with(bench: Bench) -> None:
    assert bench.case.uncounted is not None
    params = Params(sampling=bench.case.uncounted)
    try:
        pieces = await run(bench, params=params, resume=after(ids_of(await run(bench))[:2]))
    except MeshError as error:
        code = error.info.code
    else:
        (code,) = [piece.error.code for piece in pieces if piece.error]
    assert code is ErrorCode.REPLICA_LOST


@goes_on_by(ResumeContract.REPLAY)
@pytest.mark.parametrize("share", SHARES)
async def test_what_is_made_again_goes_on_where_it_was(bench: Bench, share: float) -> None:
    whole = await run(bench)
    begun = whole[: int(len(whole) * share)]
    journals = [journal(modality, begun) for modality in sorted(bench.case.wanted)]
    given = submission(
        modalities=tuple(sorted(bench.case.wanted)),
        contract=ResumeContract.REPLAY,
        resume=journals,
    )
    replays = Replays(counted)
    number = bench.next()
    replays.start(number, given, given.roles[0])
    bench.engine.submit(work(bench.case, number, bench.case.usual))
    await bench.until_over(number)
    rest, broken = replays.cut(bench.pieces[number])
    assert broken == []
    for modality in bench.case.wanted:
        assert lane(begun, modality) + lane(rest, modality) == lane(whole, modality)
        ended = any(piece.end for piece in begun if piece.modality == modality)
        ends = [piece.end for piece in rest if piece.modality == modality and piece.end]
        assert len(ends) == 1
        assert ended or ends[0].usage == end_of_lane(whole, modality).usage


def lane(pieces: Sequence[Piece], modality: Modality) -> bytes:
    """Join what a lane has given."""
    return b"".join(
        piece.text.encode() + (piece.body.inline if piece.body else b"")
        for piece in pieces
        if piece.modality == modality
    )


def end_of_lane(pieces: Sequence[Piece], modality: Modality) -> End:
    (end,) = [piece.end for piece in pieces if piece.modality == modality and piece.end]
    return end


def journal(modality: Modality, begun: Sequence[Piece]) -> LaneJournal:
    """Say how far a lane has come."""
    pieces = [piece for piece in begun if piece.modality == modality]
    data = b"".join(piece.text.encode() + counted(piece) for piece in pieces)
    return LaneJournal(
        lane=lane_of(STAGE, 0, modality),
        next=sum(piece.units for piece in pieces),
        digest=hashlib.blake2b(data, digest_size=16).digest(),
        end=next((piece.end for piece in pieces if piece.end), None),
    )


@goes_on_by(ResumeContract.PER_INPUT)
async def test_by_the_input_it_goes_on_at_any_of_them(bench: Bench) -> None:
    inputs = [
        msgspec.structs.replace(given, origin=(at, at + 1))
        for at, given in enumerate(bench.case.chunkings[0])
        if isinstance(given, TextInput)
    ]

    async def stream(first: int, resume: Resume | None) -> list[Piece]:
        number = bench.next()
        begin, *others = inputs[first:]
        bench.engine.submit(work(bench.case, number, begin, streamed=True, resume=resume))
        for given in others:
            bench.engine.append(number, given)
        bench.engine.close_input(number)
        await bench.until_over(number)
        return bench.pieces[number]

    whole = await stream(0, None)
    assert {piece.origin for piece in whole if piece.units} <= {given.origin for given in inputs}
    assert bench.engine.capabilities.deterministic
    for first in range(1, len(inputs)):
        begun = [piece for piece in whole if piece.origin and piece.origin[0] < first]
        positions = {
            modality: sum(piece.units for piece in begun if piece.modality == modality)
            for modality in bench.case.wanted
        }
        resume = Resume(contract=ResumeContract.PER_INPUT, positions=positions)
        rest = await stream(first, resume)
        for modality in bench.case.wanted:
            assert lane(begun, modality) + lane(rest, modality) == lane(whole, modality)
            assert end_of_lane(rest, modality).usage == end_of_lane(whole, modality).usage
