"""The values that travel on a link, apart from any wire format."""

from typing import Final

import msgspec

from stagemesh.media import Body, Modality
from stagemesh.outcome import End, FinishReason

__all__ = [
    "INPUT_END",
    "INPUT_PIECE_BYTES",
    "NO_SOURCE",
    "REQUEST_SOURCE",
    "Grant",
    "Row",
    "confirming_cost",
    "row_cost",
]

REQUEST_SOURCE: Final = 0xFFFF_FFFF
"""The lane of the request's own streamed input, which no stage gives."""

INPUT_END: Final = End(finish_reason=FinishReason.STOP)
"""Of a client's streamed input, of which nothing more is to be said."""

INPUT_PIECE_BYTES: Final = 256
"""What a piece of streamed input that is kept takes besides its text or bytes."""

NO_SOURCE = 0
"""The source of a grant for outputs, which has none."""

_MODALITY_MASK: Final = 0xF
_AUDIO: Final = int(Modality.AUDIO)


class Row(msgspec.Struct, gc=False):
    """One output: it covers `[pos, pos + units)` of its lane, and may carry the lane's end.

    Text travels in `text`, with token ids beside it where the lane was asked for them; everything
    else in `body`, which whoever routes the row never opens. `origin` is the range of units of the
    stage's input that the output was made of, where the stage makes each output of one input alone.
    A segment of the lane may end with it, which is not the lane's end.

    A piece of a client's streamed input is a row of the lane `REQUEST_SOURCE`: its position counts
    pieces, and audio is in `body`.
    """

    slot: int
    lane: int
    pos: int
    units: int
    text: str = ""
    ids: list[int] | None = None
    kind: int = 0
    visible: bool = True
    body: Body | None = None
    end: End | None = None
    origin: tuple[int, int] | None = None
    segment_end: bool = False

    @property
    def size_bytes(self) -> int:
        """What the row costs of a byte account.

        Text counts by its characters, so that both ends agree and neither has to encode it.
        """
        size = len(self.text)
        if self.ids is not None:
            size += 4 * len(self.ids)
        if self.body is not None:
            size += self.body.size_bytes
        return size


class Grant(msgspec.Struct, gc=False):
    """Credit for one key, as totals since the key began."""

    slot: int
    source: int
    units: int
    bytes: int


def row_cost(row: Row) -> tuple[int, int]:
    """Tell what a row costs of a credit account: units and bytes.

    Tokens and items are counted in units, audio samples by their bytes only. Costs add up: joining
    two rows changes neither sum, so the two ends of a link may see different rows and agree.
    """
    ids = row.ids
    size = len(row.text)
    if ids is not None:
        size += 4 * len(ids)
    elif row.lane & _MODALITY_MASK == _AUDIO:
        return 0, size if row.body is None else size + row.body.size_bytes
    if row.body is not None:
        size += row.body.size_bytes
    return row.units, size


def confirming_cost(row: Row) -> tuple[int, int]:
    """Tell what a row counts for where credit confirms what was committed.

    An end counts one unit more, so that a bare one is confirmed too; rows before it cost what they
    cost anywhere, whoever joined them.
    """
    units, size = row_cost(row)
    return units + (row.end is not None), size
