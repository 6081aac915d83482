"""Which replica gets work."""

from typing import NamedTuple

from services.orchestrator.core.choosing import (
    least_loaded,
    prefix_affinity,
    prefix_of,
    round_robin,
)
from stagemesh.media import Body, Handle, MediaPart, Message, Modality, TextPart


class Seat(NamedTuple):
    """A replica, as a policy sees it."""

    replica_id: str
    busy: int = 0
    slots: int = 10


def message(text: str, role: str = "user") -> Message:
    return Message(role=role, parts=(TextPart(text),))


def test_the_least_loaded_for_its_size_is_chosen_and_of_equal_ones_the_first() -> None:
    assert least_loaded([Seat("a", 2), Seat("b", 1), Seat("c", 1)]) == Seat("b", 1)
    assert least_loaded([Seat("a", 2, 10), Seat("b", 1, 2)]) == Seat("a", 2, 10)
    assert least_loaded([]) is None


def test_round_robin_goes_on_behind_the_last_one_and_begins_again() -> None:
    seats = [Seat("c"), Seat("a"), Seat("b")]
    last, order = "", []
    for _ in range(5):
        chosen = round_robin(seats, last)
        assert chosen is not None
        last = chosen.replica_id
        order.append(last)
    assert order == ["a", "b", "c", "a", "b"]
    assert round_robin([Seat("a"), Seat("c")], "b") == Seat("c")
    assert round_robin([], "a") is None


def test_one_prefix_goes_to_one_replica_and_many_go_to_all() -> None:
    seats = [Seat("a"), Seat("b"), Seat("c")]
    chosen = {}
    for number in range(60):
        prefix = prefix_of([message(f"prompt {number}")])
        first, again = (prefix_affinity(seats, seats, prefix, 1) for _ in range(2))
        assert first is again
        chosen[number] = first
    assert set(chosen.values()) == set(seats)


def test_a_replica_above_its_share_is_passed_over() -> None:
    prefix = prefix_of([message("hello")])
    idle = [Seat("a"), Seat("b")]
    favourite = prefix_affinity(idle, idle, prefix, 1)
    assert favourite is not None
    busy = [Seat(s.replica_id, 6 if s == favourite else 2) for s in idle]
    other = prefix_affinity(busy, busy, prefix, 1)
    assert other is not None
    assert other.replica_id != favourite.replica_id


def test_where_all_with_room_are_above_their_share_the_least_loaded_is_chosen() -> None:
    usable = [Seat("full", 2, 2), Seat("a", 7, 10), Seat("b", 8, 10), Seat("idle", 0, 100)]
    assert prefix_affinity(usable[1:3], usable, b"p", 1) == Seat("a", 7, 10)
    assert prefix_affinity([], usable, b"p", 1) is None


def test_the_prefix_is_the_beginning_of_a_conversation_with_roles_and_media() -> None:
    shared = message("You are kind. " * 100, "system")
    assert prefix_of([shared, message("a")]) == prefix_of([shared, message("b")])
    assert prefix_of([message("a")]) != prefix_of([message("b")])
    assert prefix_of([message("a")]) != prefix_of([message("a", "system")])
    assert prefix_of([message("ab")]) != prefix_of([message("a"), message("b")])
    assert prefix_of([]) == prefix_of([])


def test_media_count_by_their_bytes_or_by_the_digest_of_their_handle() -> None:
    def image(body: Body) -> list[Message]:
        return [Message(role="user", parts=(MediaPart(modality=Modality.IMAGE, body=body),))]

    def handle(digest: bytes) -> Body:
        return Body(
            handle=Handle(
                handle_id="h",
                request_id="r",
                holder_id="g",
                incarnation=1,
                address="",
                digest=digest,
            )
        )

    assert prefix_of(image(Body(inline=b"a"))) != prefix_of(image(Body(inline=b"b")))
    assert prefix_of(image(handle(b"1"))) != prefix_of(image(handle(b"2")))
    assert prefix_of(image(handle(b"1"))) == prefix_of(image(handle(b"1")))
