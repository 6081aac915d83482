"""Replica policies, whatever the replicas: a choice has room, and load stays within its bound."""

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.core.choosing import least_loaded, prefix_affinity, round_robin


class Seat(NamedTuple):
    """A replica, as a policy sees it."""

    replica_id: str
    busy: int
    slots: int


SEATS = st.lists(
    st.builds(Seat, st.text("abc", min_size=1, max_size=3), st.integers(0, 20), st.integers(1, 20)),
    max_size=6,
    unique_by=lambda seat: seat.replica_id,
)


@given(seats=SEATS, prefix=st.binary(max_size=16), last=st.text("abc", max_size=3))
def test_what_is_chosen_has_room_and_none_is_chosen_only_where_none_has(
    seats: list[Seat], prefix: bytes, last: str
) -> None:
    room = [seat for seat in seats if seat.busy < seat.slots]
    for chosen in (
        least_loaded(room),
        round_robin(room, last),
        prefix_affinity(room, seats, prefix, 1),
    ):
        assert (chosen in room) if room else chosen is None


@given(seats=SEATS)
def test_nobody_with_room_is_less_loaded_than_the_least_loaded(seats: list[Seat]) -> None:
    chosen = least_loaded(seats)
    assert chosen is None or all(
        chosen.busy * seat.slots <= seat.busy * chosen.slots for seat in seats
    )


@given(seats=SEATS.filter(bool), rounds=st.integers(1, 30))
def test_in_turns_everybody_is_chosen_as_often_as_the_others(
    seats: list[Seat], rounds: int
) -> None:
    last, counts = "", Counter[str]()
    for _ in range(rounds):
        chosen = round_robin(seats, last)
        assert chosen is not None
        last = chosen.replica_id
        counts[last] += 1
    most = max(counts.values())
    assert all(most - counts[seat.replica_id] <= 1 for seat in seats)


@given(
    slots=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    prefixes=st.lists(st.binary(min_size=1, max_size=2), max_size=60),
)
def test_no_replica_gets_much_more_than_its_share_for_the_sake_of_a_prefix(
    slots: list[int], prefixes: list[bytes]
) -> None:
    seats = [Seat(f"r{at}", 0, count) for at, count in enumerate(slots)]
    for prefix in prefixes:
        room = [seat for seat in seats if seat.busy < seat.slots]
        chosen = prefix_affinity(room, seats, prefix, 1)
        if chosen is None:
            continue
        work = 1 + sum(seat.busy for seat in seats)
        share = 1.25 * work * chosen.slots / sum(slots)
        least = min(seat.busy / seat.slots for seat in room)
        assert chosen.busy + 1 <= max(1, share) or chosen.busy / chosen.slots == least
        at = seats.index(chosen)
        seats[at] = chosen._replace(busy=chosen.busy + 1)


@given(seats=SEATS.filter(lambda seats: len(seats) > 1), prefix=st.binary(max_size=16))
def test_a_replica_that_goes_moves_only_its_own_prefixes(seats: list[Seat], prefix: bytes) -> None:
    idle = [seat._replace(busy=0) for seat in seats]
    before = prefix_affinity(idle, idle, prefix, 1)
    for gone in idle:
        left = [seat for seat in idle if seat is not gone]
        after = prefix_affinity(left, left, prefix, 1)
        assert gone is before or after == before
