"""Any run of owners, each lost at any point, gives a client every position once and in order."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.client import Exchange, State, Taken
from services.gateway.client.parties import Owner
from services.gateway.core.journal import RequestJournal
from services.gateway.core.redrive import Loss, LossKind, Redrive, RedrivePolicy
from stagemesh.errors import MeshError
from stagemesh.link.core import Grant, Journal, LaneDigest, Row, Sender
from stagemesh.media import Body, Handle, Modality, Request, lane_of
from stagemesh.outcome import COMPLETED, End, FinishReason, Outcome, error_for

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)
IMAGE = lane_of(2, 0, Modality.IMAGE)
HIDDEN = lane_of(3, 0, Modality.TEXT)
LENGTHS = {TEXT: 40, AUDIO: 30, IMAGE: 4, HIDDEN: 40}
STOP = End(finish_reason=FinishReason.STOP)
WINDOW = (16, 400)
LOSSES_MAX = 12
STEPS = 10
"""Turns of the loop in which whatever can happen has happened."""


def piece(lane: int, pos: int, units: int, by_handle: bool) -> Row:
    """What a lane holds at a position, whoever makes it and however it is cut."""
    end = STOP if pos + units == LENGTHS[lane] else None
    at = range(pos, pos + units)
    match lane:
        case lane if lane in {TEXT, HIDDEN}:
            text = "".join(f" w{i}" for i in at)
            ids = [i + 1 for i in at] if lane == TEXT else None
            return Row(1, lane, pos, units, text, ids, 0, lane == TEXT, None, end)
        case lane if lane == AUDIO:
            return Row(
                1, lane, pos, units, body=Body(inline=bytes(i for i in at for _ in "ab")), end=end
            )
    data = b"".join(b"image %d" % i for i in at)
    handle = Handle(
        handle_id=data.decode(), request_id="r", holder_id="w", incarnation=1, address="a",
        size_bytes=len(data), digest=data,
    )  # fmt: skip
    body = Body(handle=handle) if by_handle else Body(inline=data)
    return Row(1, lane, pos, units, body=body, end=end)


@dataclass
class FakeOwner:
    """Makes what is missing from a journal; the same whatever was cut how before."""

    draw: random.Random
    exchange: Exchange
    next: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    sender: Sender = field(default_factory=lambda: Sender(*WINDOW))
    wire: list[Row] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    aborted: bool = False

    def begin(self, journal: Journal) -> None:
        """Go on where the journal stands, after a look at whether it is true."""
        for lane in journal.lanes:
            check(lane.lane, lane.next, lane)
            self.next[lane.lane] = lane.next
            if lane.end is not None:
                self.ended.add(lane.lane)

    @property
    def left(self) -> list[int]:
        """The lanes that have not ended."""
        return [lane for lane in LENGTHS if lane not in self.ended]

    def make(self, lane: int) -> None:
        """Make one more piece of a lane, and send it or hold it for credit."""
        pos = self.next.get(lane, 0)
        most = 1 if lane == IMAGE else min(5, LENGTHS[lane] - pos)
        units = self.draw.randint(1, most)
        row = piece(lane, pos, units, self.draw.random() < 0.5)
        self.next[lane] = pos + units
        if row.end is not None:
            self.ended.add(lane)
        self.wire += self.sender.offer(row) if row.visible else [row]

    def grant(self, exchange: Exchange, grant: Grant) -> None:
        """See `Owner`."""
        self.wire += self.sender.grant(grant.units, grant.bytes)

    def abort(self, exchange: Exchange, cause: str) -> None:
        """See `Owner`."""
        self.aborted = True

    def handle_lost(self, exchange: Exchange, handle_id: str) -> None:
        """See `Owner`."""
        self.again.append(int(handle_id.split()[1]))

    def leave(self, exchange: Exchange) -> None:
        """It is over here."""

    def cede(self, exchange: Exchange, *, here: bool) -> None:
        """Nobody else has it."""


def check(number: int, beyond: int, kept: Any) -> None:
    """Check that what a journal says of a lane is exactly its beginning."""
    whole = piece(number, 0, beyond, by_handle=True)
    if number in {TEXT, HIDDEN}:
        assert "".join(row.text for row in kept.rows) == (whole.text if beyond else "")
        assert kept.ids == (whole.ids or [])
        assert sum(row.units for row in kept.rows) == beyond
    if number == AUDIO:
        digest = LaneDigest()
        digest.add(whole)
        assert kept.digest == digest.value
    assert (kept.end is not None) == (beyond == LENGTHS[number])
    assert kept.visible_pos == (0 if number == HIDDEN else beyond)


class Client:
    """Takes what there is, and finds new owners as a keeper does."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.losses = 0
        modalities = (Modality.TEXT, Modality.AUDIO, Modality.IMAGE)
        self.exchange = Exchange(
            Request(model="m", messages=(), modalities=modalities),
            request_id="r",
            window=WINDOW,
            keeper=self,
            journal=RequestJournal(1, modalities, bytes_max=10**6),
            redrive=Redrive(RedrivePolicy(epochs_max=10**6)),
            deadline_at_s=0.0,
            fetch=self.fetch,
            on_drop=lambda: None,
        )
        self.owner: FakeOwner | None = None
        self.taking: asyncio.Future[Taken] | None = None
        self.got: dict[int, list[Row]] = {lane: [] for lane in LENGTHS}

    async def fetch(self, body: Body) -> Body:
        """Give the bytes behind a handle, most of the time."""
        assert body.handle is not None
        if self.draw.random() < 0.25:
            raise MeshError(error_for("handle_lost"))
        return Body(inline=body.handle.digest)

    def lost(self, exchange: Exchange, loss: Loss, owner: Owner | None) -> None:
        """See `Keeper`."""
        self.losses += 1
        self.owner = None

    def release(self, exchange: Exchange) -> None:
        """It is done."""

    def open(self) -> FakeOwner:
        """Give the request to the next owner."""
        self.owner = FakeOwner(self.draw, self.exchange)
        self.owner.begin(self.exchange.journal.export())
        self.exchange.opened(self.owner, 1, 0.0)
        return self.owner

    async def take(self) -> bool:
        """Take what can be had; tell whether it is the last."""
        while True:
            if self.taking is None:
                self.taking = asyncio.ensure_future(self.exchange.take())
            for _ in range(STEPS):
                await asyncio.sleep(0)
            if not self.taking.done():
                return False
            taken, self.taking = self.taking.result(), None
            for row in taken.rows:
                self.got[row.lane].append(row)
            self.exchange.settle(taken.rows)
            if taken.terminal is not None:
                assert taken.terminal.outcome is Outcome.COMPLETED, taken.terminal
                return True


async def run(draw: random.Random) -> Client:
    client = Client(draw)
    exchange = client.exchange
    for _ in range(2_000):
        owner = client.owner or client.open()
        match draw.choice("mmmmttpphl" if client.losses < LOSSES_MAX else "mtp"):
            case "m" if owner.left:
                owner.make(draw.choice(owner.left))
            case "m" if not owner.wire and not owner.again and not owner.sender.held_bytes:
                exchange.finish(COMPLETED)
            case "t":
                if await client.take():
                    return client
            case "p":
                for row in owner.wire:
                    exchange.push(row)
                owner.wire = []
            case "h":
                for pos in owner.again:
                    owner.next[IMAGE] = min(pos, owner.next[IMAGE])
                    owner.ended.discard(IMAGE)
                owner.again = []
            case "l":
                kind = draw.choice(list(LossKind))
                exchange.lose(Loss(kind=kind, info=error_for("link_lost")))
        if client.losses >= LOSSES_MAX:
            for pos in owner.again:
                owner.next[IMAGE] = min(pos, owner.next[IMAGE])
                owner.ended.discard(IMAGE)
            owner.again = []
        assert not owner.aborted
    raise AssertionError("it does not come to an end")


@pytest.mark.invariant("ORCH-INV-204")
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_every_position_comes_once_and_in_order_whoever_is_lost(seed: int) -> None:
    client = asyncio.run(run(random.Random(seed)))
    assert client.exchange.state is State.DONE
    assert client.got[HIDDEN] == []
    for lane in (TEXT, AUDIO, IMAGE):
        beyond = 0
        for row in client.got[lane]:
            assert row.pos == beyond
            beyond += row.units
        assert beyond == LENGTHS[lane]
    whole = piece(TEXT, 0, LENGTHS[TEXT], by_handle=False)
    assert "".join(row.text for row in client.got[TEXT]) == whole.text
    for lane in (AUDIO, IMAGE):
        given_bytes = b"".join(row.body.inline for row in client.got[lane] if row.body)
        body = piece(lane, 0, LENGTHS[lane], by_handle=False).body
        assert body is not None
        assert given_bytes == body.inline
