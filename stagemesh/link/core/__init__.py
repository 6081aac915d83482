"""The link without I/O: rows, credit, positions, bounded messages and signs of life."""

from stagemesh.link.core.credit import WINDOW_BYTES, WINDOW_UNITS, Meter, Sender, Window
from stagemesh.link.core.cursor import Cursor, Step
from stagemesh.link.core.journal import (
    JOURNAL_PART_BYTES_MAX,
    Journal,
    LaneDigest,
    LaneJournal,
    Placed,
    join_journals,
    split_journal,
)
from stagemesh.link.core.liveness import Liveness
from stagemesh.link.core.outbox import (
    MESSAGE_BYTES_MAX,
    MESSAGE_ROWS_MAX,
    NO_ORIGIN,
    Batch,
    Outbox,
)
from stagemesh.link.core.rows import (
    INPUT_END,
    INPUT_PIECE_BYTES,
    NO_SOURCE,
    REQUEST_SOURCE,
    Grant,
    Row,
    confirming_cost,
    row_cost,
)
from stagemesh.link.core.slots import SlotMint

__all__ = [
    "INPUT_END",
    "INPUT_PIECE_BYTES",
    "JOURNAL_PART_BYTES_MAX",
    "MESSAGE_BYTES_MAX",
    "MESSAGE_ROWS_MAX",
    "NO_ORIGIN",
    "NO_SOURCE",
    "REQUEST_SOURCE",
    "WINDOW_BYTES",
    "WINDOW_UNITS",
    "Batch",
    "Cursor",
    "Grant",
    "Journal",
    "LaneDigest",
    "LaneJournal",
    "Liveness",
    "Meter",
    "Outbox",
    "Placed",
    "Row",
    "Sender",
    "SlotMint",
    "Step",
    "Window",
    "confirming_cost",
    "join_journals",
    "row_cost",
    "split_journal",
]
