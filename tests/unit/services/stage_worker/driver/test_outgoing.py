from collections.abc import Iterator
from pathlib import Path

import pytest

from services.stage_worker.driver import Ledger, Outgoing
from services.stage_worker.driver.outgoing import PUT_HERE_BYTES_MAX
from services.stage_worker.engines.base import Piece
from stagemesh.media import INLINE_BYTES_MAX, Body, Modality
from stagemesh.outcome import ErrorCode
from stagemesh.payload import PayloadStore
from stagemesh.telemetry import Metrics

BYTES_MAX = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PayloadStore]:
    """A small store."""
    made = PayloadStore(
        holder_id="w",
        incarnation=1,
        address="",
        directory=tmp_path,
        bytes_max=BYTES_MAX,
        lease_s=60,
    )
    yield made
    made.close()


def piece(modality: Modality, size: int) -> Piece:
    return Piece(attempt=1, modality=modality, units=1, body=Body(inline=bytes(size)))


async def test_a_body_counts_by_what_travels_of_it(store: PayloadStore) -> None:
    small, large = piece(Modality.AUDIO, 10), piece(Modality.AUDIO, INLINE_BYTES_MAX + 1)
    it = outgoing(store)
    assert it.counted(small) == bytes(10)
    ((kept,), _) = await it.stored([large])
    assert kept.body is not None
    assert kept.body.handle is not None
    assert it.counted(large) == kept.body.handle.digest != b""
    assert it.counted(Piece(attempt=1, text="x", units=1)) == b""


def outgoing(store: PayloadStore, request_id: str | None = "req_a") -> Outgoing:
    return Outgoing(store, Ledger(Metrics(process=False)), lambda attempt: request_id)


@pytest.mark.parametrize(
    ("modality", "size", "goes"),
    [
        (Modality.TENSOR, 1, True),
        (Modality.IMAGE, INLINE_BYTES_MAX, False),
        (Modality.IMAGE, INLINE_BYTES_MAX + 1, True),
        (Modality.AUDIO, PUT_HERE_BYTES_MAX + 1, True),
    ],
)
async def test_tensors_and_large_bodies_go_to_the_store(
    store: PayloadStore, modality: Modality, size: int, goes: bool
) -> None:
    given = [piece(modality, size)]
    assert Outgoing.concerns(given) is goes
    (kept,), broken = await outgoing(store).stored(given)
    assert broken == []
    assert kept.body is not None
    assert (kept.body.handle is not None) is goes
    assert kept.body.size_bytes == size
    assert store.bytes_used == (size if goes else 0)


async def test_pieces_keep_their_order(store: PayloadStore) -> None:
    given = [
        Piece(attempt=1, units=1, text="a"),
        piece(Modality.TENSOR, 9),
        Piece(attempt=1, units=1, text="b"),
    ]
    kept, _ = await outgoing(store).stored(given)
    assert [(one.text, one.modality) for one in kept] == [
        ("a", Modality.TEXT),
        ("", Modality.TENSOR),
        ("b", Modality.TEXT),
    ]


async def test_a_full_store_breaks_the_attempt(store: PayloadStore) -> None:
    (kept,), (broke,) = await outgoing(store).stored([piece(Modality.TENSOR, BYTES_MAX + 1)])
    assert kept.body is None
    assert broke.error.code is ErrorCode.OVERLOADED


@pytest.mark.parametrize("size", [10, PUT_HERE_BYTES_MAX + 1])
async def test_what_nobody_waits_for_is_not_stored(store: PayloadStore, size: int) -> None:
    (kept,), broken = await outgoing(store, None).stored([piece(Modality.TENSOR, size)])
    assert (kept.body, broken, store.bytes_used) == (None, [], 0)


async def test_what_is_stored_too_late_is_dropped_again(store: PayloadStore) -> None:
    answers = iter(["req_a", None])
    late = Outgoing(store, Ledger(Metrics(process=False)), lambda attempt: next(answers))
    (kept,), _ = await late.stored([piece(Modality.TENSOR, PUT_HERE_BYTES_MAX + 1)])
    assert (kept.body, store.bytes_used) == (None, 0)
