"""The link's core under any order of rows, frames, grants and writes."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.link.core import Batch, Cursor, Grant, Meter, Outbox, Row, Sender, Step, row_cost
from stagemesh.media import Body, Modality, lane_of
from stagemesh.outcome import End, FinishReason

STOP = End(finish_reason=FinishReason.STOP)
TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)

pieces = st.tuples(
    st.integers(1, 3),  # slot
    st.sampled_from([TEXT, AUDIO]),
    st.integers(0, 5),  # units
    st.text(max_size=8),
    st.booleans(),  # with token ids, or with a body
    st.integers(0, 1),  # kind
    st.booleans(),  # visible
)
Piece = tuple[int, int, int, str, bool, int, bool]


class Source:
    """Makes rows whose positions are right, and remembers what each lane must come to."""

    def __init__(self) -> None:
        self._next: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.made: defaultdict[int, list[Row]] = defaultdict(list)

    def row(self, piece: Piece) -> Row:
        """Make the next row of a lane."""
        slot, lane, units, text, extra, kind, visible = piece
        pos = self._next[slot, lane]
        self._next[slot, lane] += units
        if lane == AUDIO:
            row = Row(slot, lane, pos, units, body=Body(inline=text.encode()), visible=visible)
        else:
            ids = (list(range(pos, pos + units)) or None) if extra else None
            row = Row(slot, lane, pos, units, text, ids, kind, visible)
        self.made[slot].append(row)
        return row


def rows_of(batch: Batch) -> list[Row]:
    """The rows of a message in the order of application."""
    rows = []
    taken = 0
    ends = dict(batch.ends)
    for index, slot in enumerate(batch.slots):
        count = batch.id_counts[index] if batch.id_counts else 0
        rows.append(
            Row(
                slot,
                batch.lanes[index],
                batch.positions[index],
                batch.units[index],
                batch.texts[index],
                batch.ids[taken : taken + count] or None,
                batch.kinds[index] if batch.kinds else 0,
                batch.visible[index] if batch.visible else True,
                end=ends.get(index),
            )
        )
        taken += count
    rows.extend(frame for frame in batch.frames if isinstance(frame, Row))
    return rows


def flat(rows: list[Row]) -> list[tuple[object, ...]]:
    """What rows come to, however they were cut: joined where a sender may join them."""
    joined: list[list[object]] = []
    for row in rows:
        ids = tuple(row.ids or ())
        body = row.body.inline if row.body else None
        last = joined[-1] if joined else None
        key = [row.lane, row.kind, row.visible, body is None]
        if last and body is None and last[:4] == key and last[4] == row.pos and last[7] is None:
            last[4] = row.pos + row.units
            last[5] = f"{last[5]}{row.text}"
            last[6] = (*last[6], *ids)  # type: ignore[misc]
            last[7] = row.end
        else:
            joined.append([*key, row.pos + row.units, row.text, ids, row.end, body])
    return [tuple(one) for one in joined]


class Hop:
    """A sender for each slot, one outbox, and a receiver that grants when it pleases."""

    def __init__(self, units: int, size: int, bytes_max: int, rows_max: int) -> None:
        self.outbox = Outbox(bytes_max=bytes_max, rows_max=rows_max)
        self.bytes_max, self.rows_max = bytes_max, rows_max
        self.senders = {slot: Sender(units, size) for slot in (1, 2, 3)}
        self.meters = {slot: Meter(units, size) for slot in (1, 2, 3)}
        self.totals = {slot: (units, size) for slot in (1, 2, 3)}
        self.sent: defaultdict[int, list[Row]] = defaultdict(list)
        self.got: defaultdict[int, list[Row]] = defaultdict(list)
        self.spent = {slot: (0, 0) for slot in (1, 2, 3)}
        self.untaken: dict[int, list[Row]] = {1: [], 2: [], 3: []}

    def send(self, rows: list[Row]) -> None:
        """Put rows in the outbox, if the credit allows them."""
        for row in rows:
            units, size = self.spent[row.slot]
            cost = row_cost(row)
            units_total, bytes_total = self.totals[row.slot]
            # A row may overrun the account; it must not find it overdrawn.
            assert cost == (0, 0) or (units < units_total and size < bytes_total)
            self.spent[row.slot] = (units + cost[0], size + cost[1])
            self.sent[row.slot].append(row)
        self.outbox.put_rows(rows)

    def write(self) -> bool:
        """Write one message, and receive it; return whether there was one."""
        batch = self.outbox.take()
        if batch is None:
            return False
        things = len(batch.slots) + len(batch.frames) + len(batch.grants)
        assert things > 0
        assert batch.size_bytes <= self.bytes_max or things == 1
        assert len(batch.slots) <= self.rows_max
        for row in rows_of(batch):
            self.got[row.slot].append(row)
            self.untaken[row.slot].append(row)
        return True

    def take(self, slot: int) -> None:
        """The consumer of a slot takes all that came for it."""
        for row in self.untaken[slot]:
            totals = self.meters[slot].took(*row_cost(row))
            if totals is not None:
                assert totals >= self.totals[slot]
                self.totals[slot] = totals
                self.send(self.senders[slot].grant(*totals))
        self.untaken[slot].clear()


steps = st.one_of(
    st.tuples(st.just("row"), pieces),
    st.tuples(st.just("write"), st.none()),
    st.tuples(st.just("take"), st.integers(1, 3)),
)


@given(
    st.lists(steps, max_size=60),
    st.integers(1, 12),
    st.integers(1, 64),
    st.integers(40, 200),
    st.integers(1, 8),
)
def test_rows_arrive_once_in_order_and_within_credit(
    script: list[tuple[str, Any]], units: int, size: int, bytes_max: int, rows_max: int
) -> None:
    source, hop = Source(), Hop(units, size, bytes_max, rows_max)
    for what, value in script:
        if what == "row":
            row = source.row(value)
            hop.send(hop.senders[row.slot].offer(row))
        elif what == "write":
            hop.write()
        else:
            hop.take(value)
    # However it stands now, a receiver that takes everything gets everything.
    for slot in (1, 2, 3):
        while hop.write() or hop.untaken[slot]:
            for any_slot in (1, 2, 3):
                hop.take(any_slot)
    for slot in (1, 2, 3):
        assert flat(hop.got[slot]) == flat(source.made[slot])
        assert hop.senders[slot].held_units == 0
        assert hop.senders[slot].held_bytes == 0
        cursors: defaultdict[int, Cursor] = defaultdict(Cursor)
        assert all(cursors[row.lane].check(row) is Step.ACCEPT for row in hop.got[slot])
    assert hop.outbox.waiting_bytes == 0


puts = st.one_of(
    st.tuples(st.just("row"), pieces),
    st.tuples(st.just("frame"), st.lists(st.integers(1, 4), max_size=2)),
    st.tuples(st.just("grant"), st.integers(1, 4)),
    st.tuples(st.just("take"), st.none()),
)


class Writer:
    """An outbox, and what each slot was given in which order."""

    def __init__(self, bytes_max: int, rows_max: int) -> None:
        self._outbox = Outbox(bytes_max=bytes_max, rows_max=rows_max)
        self._source = Source()
        self.given: defaultdict[int, list[object]] = defaultdict(list)
        self.frames: list[object] = []
        self.granted: dict[int, int] = {}
        self.batches: list[Batch] = []

    def put_row(self, piece: Piece) -> None:
        """Put the next row of a lane."""
        row = self._source.row(piece)
        self._outbox.put_rows([row])
        self.given[row.slot].append(row)
        if row.body is not None:
            self.frames.append(row)

    def put_frame(self, slots: list[int]) -> None:
        """Put a frame that differs from all others."""
        frame = (len(self.frames), slots)
        self._outbox.put_frame(frame, slots, 30)
        self.frames.append(frame)
        for slot in set(slots):
            self.given[slot].append(frame)

    def put_grant(self, slot: int) -> None:
        """Put a grant that is higher than the last."""
        total = self.granted[slot] = self.granted.get(slot, 0) + 1
        self._outbox.put_grants([Grant(slot, 0, total, total)])

    def take(self, _: object = None) -> bool:
        """Take one message; return whether there was one."""
        batch = self._outbox.take()
        if batch is not None:
            self.batches.append(batch)
        return batch is not None


def seen_by_slot(batches: list[Batch]) -> dict[int, list[object]]:
    """What each slot sees when the messages are applied: rows first, then frames."""
    seen: defaultdict[int, list[object]] = defaultdict(list)
    for batch in batches:
        for row in rows_of(batch):
            if row.body is None:
                seen[row.slot].append(row)
        for frame in batch.frames:
            for slot in {frame.slot} if isinstance(frame, Row) else set(frame[1]):
                seen[slot].append(frame)
    return seen


@given(st.lists(puts, max_size=60), st.integers(60, 400), st.integers(1, 8))
def test_each_slot_sees_rows_and_frames_in_the_order_given(
    script: list[tuple[str, Any]], bytes_max: int, rows_max: int
) -> None:
    writer = Writer(bytes_max, rows_max)
    acts: dict[str, Callable[[Any], object]] = {
        "row": writer.put_row,
        "frame": writer.put_frame,
        "grant": writer.put_grant,
        "take": writer.take,
    }
    for what, value in script:
        acts[what](value)
    while writer.take():
        pass
    granted: dict[int, int] = {}
    for batch in writer.batches:
        for grant in batch.grants.values():
            assert grant.units > granted.get(grant.slot, 0)
            granted[grant.slot] = grant.units
    assert seen_by_slot(writer.batches) == writer.given
    assert granted == writer.granted
    assert [frame for batch in writer.batches for frame in batch.frames] == writer.frames


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=80), st.integers(1, 20))
def test_granted_totals_never_fall_and_never_lag_by_a_window(
    taken: list[tuple[int, int]], units: int
) -> None:
    meter, last, sums = Meter(units, 100), (units, 100), (0, 0)
    for took in taken:
        sums = (sums[0] + took[0], sums[1] + took[1])
        totals = meter.took(*took)
        if totals is not None:
            assert totals[0] >= last[0]
            assert totals[1] >= last[1]
            last = totals
        assert last[0] > sums[0]
        assert last[1] > sums[1]
