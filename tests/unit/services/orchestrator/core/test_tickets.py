"""Queues for engine slots."""

from services.orchestrator.core.plan import compile_plan
from services.orchestrator.core.request import Client, Group, OpenRequest
from services.orchestrator.core.tickets import Ticket, TicketQueue
from stagemesh.media import Modality
from tests.helpers.core_mesh import core_mesh

TALK = core_mesh().pipelines["talk"]


def groups(number: int) -> tuple[Group, ...]:
    plan = compile_plan(TALK, modalities=frozenset(), choices=2, inputs=frozenset({Modality.TEXT}))
    return OpenRequest(
        number=number,
        request_id=f"r{number}",
        epoch=1,
        client=Client(1, 64, 1024),
        slot=number,
        plan=plan,
        body=None,
        input_bytes=0,
        opened_s=0.0,
        deadline_s=9.0,
    ).groups


def ticket(group: Group) -> Ticket:
    group.ticket = Ticket(group.key, group)
    return group.ticket


def test_downstream_goes_first_then_age_then_choice() -> None:
    old, young = groups(1), groups(2)
    queue = TicketQueue()
    for group in (*young, *old):
        queue.push(ticket(group))
    order = []
    while (head := queue.head()) is not None:
        order.append((head.group.stage.name, head.group.request.number, head.group.plan.choice))
        queue.pop()
    assert order == [
        ("talker", 1, 0), ("talker", 1, 1), ("talker", 2, 0), ("talker", 2, 1),
        ("thinker", 1, 0), ("thinker", 1, 1), ("thinker", 2, 0), ("thinker", 2, 1),
    ]  # fmt: skip


def test_a_ticket_is_void_once_its_group_holds_another_or_none() -> None:
    (group, other, *_) = groups(1)
    queue = TicketQueue()
    first = ticket(group)
    queue.push(first)
    queue.push(ticket(other))
    assert queue.head() is first
    group.ticket = None
    head = queue.head()
    assert head is not None
    assert head.group is other
    assert [valid.group for valid in queue.drain()] == [other]
    assert queue.head() is None


def test_void_tickets_do_not_pile_up() -> None:
    queue = TicketQueue()
    kept = groups(0)[3]
    queue.push(ticket(kept))
    group = groups(1)[0]
    for _ in range(5_000):
        queue.push(ticket(group))
    assert len(queue) < 200
    assert {valid.group for valid in queue.valid()} == {kept, group}
