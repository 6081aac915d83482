"""Requests whose journal comes in parts."""

import pytest

from services.orchestrator.servicer.openings import BYTES_MAX, Openings
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.outcome import ErrorCode


def part(slot: int, size: int = 0) -> link_pb2.JournalPart:
    lanes = [link_pb2.LaneJournal(lane=1, digest=b"x" * size)]
    return link_pb2.JournalPart(slot=slot, journal=link_pb2.Journal(lanes=lanes))


def test_a_request_that_is_whole_waits_for_nothing() -> None:
    openings = Openings()
    assert not openings.begin(link_pb2.Open(slot=1))
    assert openings.take(1) is None


def test_parts_are_given_in_order_with_their_request_and_once() -> None:
    openings = Openings()
    assert openings.begin(link_pb2.Open(slot=1, more=True))
    assert openings.begin(link_pb2.Open(slot=2, more=True))
    parts = [part(1, 1), part(1, 2)]
    for one in parts:
        openings.add(one)
    whole = openings.take(1)
    assert whole is not None
    assert (whole.frame.slot, whole.parts) == (1, parts)
    assert openings.take(1) is None
    assert len(openings) == 1


def test_a_part_of_nothing_is_dropped() -> None:
    openings = Openings()
    openings.add(part(7))
    assert len(openings) == 0


def test_input_belongs_to_the_opening_until_that_is_whole() -> None:
    openings = Openings()
    openings.begin(link_pb2.Open(slot=1, more=True, streamed=True))
    pieces = [Row(1, REQUEST_SOURCE, at, 1, "a") for at in range(3)]
    assert openings.add_input(pieces[0])
    assert openings.add_input(pieces[1])
    assert not openings.add_input(Row(2, REQUEST_SOURCE, 0, 1, "b"))
    whole = openings.take(1)
    assert whole is not None
    assert whole.inputs == pieces[:2]
    assert not openings.add_input(pieces[2])


def test_a_link_holds_no_more_than_it_may_and_has_room_again_later() -> None:
    openings = Openings()
    half = BYTES_MAX // 2
    for _ in range(2):
        openings.begin(link_pb2.Open(slot=1, more=True))
        openings.add(part(1, half))
        with pytest.raises(MeshError) as caught:
            openings.add(part(1, half))
        assert caught.value.info.code is ErrorCode.PROTOCOL
        openings.take(1)
