"""Large results: their bytes go to the payload store, and a handle travels in their place."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from services.stage_worker.core.events import AttemptBroke
from services.stage_worker.driver.ledger import Ledger
from services.stage_worker.engines.base import Piece
from stagemesh.errors import MeshError
from stagemesh.media import INLINE_BYTES_MAX, Body, Modality

if TYPE_CHECKING:
    from stagemesh.payload import PayloadStore

__all__ = ["Outgoing", "counted_bytes"]

PUT_HERE_BYTES_MAX: Final = 256 * 1024
"""Above this, a put takes longer than the event loop should stand still."""

RequestOf = Callable[[int], str | None]


class Outgoing:
    """Puts bodies away: tensors always, others above `INLINE_BYTES_MAX`."""

    def __init__(self, store: "PayloadStore", ledger: Ledger, request_of: RequestOf) -> None:
        self._store = store
        self._ledger = ledger
        self._request_of = request_of

    @staticmethod
    def concerns(pieces: list[Piece]) -> bool:
        """Tell whether a step has bodies that must be put away."""
        return any(piece.body is not None and _is_large(piece, piece.body) for piece in pieces)

    def counted(self, piece: Piece) -> bytes:
        """Give what a piece's body counts for in its lane's digest."""
        return counted_bytes(piece, self._store.digest_at_put)

    async def stored(self, pieces: list[Piece]) -> tuple[list[Piece], list[AttemptBroke]]:
        """Give the pieces with handles, in their order, and which attempts had no room.

        The bytes of an attempt that nobody waits for any more are dropped.
        """
        kept: list[Piece] = []
        broken: list[AttemptBroke] = []
        for piece in pieces:
            body = piece.body
            if body is not None and _is_large(piece, body):
                try:
                    body = await self._put(piece.attempt, body)
                except MeshError as error:
                    broken.append(AttemptBroke(attempt=piece.attempt, error=error.info))
                    body = None
                kept.append(msgspec.structs.replace(piece, body=body))
            else:
                kept.append(piece)
        return kept, broken

    async def _put(self, attempt: int, body: Body) -> Body | None:
        request_id = self._request_of(attempt)
        if request_id is None:
            return None
        data = body.inline
        if len(data) <= PUT_HERE_BYTES_MAX:
            handle = self._store.put(data, request_id)
        else:
            handle = await self._store.put_large(data, request_id)
            if self._request_of(attempt) is None:  # It ended meanwhile, and its request perhaps.
                self._store.release(request_id, (handle.handle_id,))
                return None
        self._ledger.stored(len(data))
        return msgspec.structs.replace(body, inline=b"", handle=handle)


def counted_bytes(piece: Piece, digest: Callable[[bytes], bytes]) -> bytes:
    """Give what a piece's body counts for in its lane's digest: its bytes or its handle's digest.

    `digest` gives the one that a handle for some bytes gets.
    """
    body = piece.body
    if body is None:
        return b""
    return digest(body.inline) if _is_large(piece, body) else body.inline


def _is_large(piece: Piece, body: Body) -> bool:
    return body.handle is None and (
        piece.modality is Modality.TENSOR or len(body.inline) > INLINE_BYTES_MAX
    )
