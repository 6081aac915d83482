"""Whose turn it is among tenants."""

import pytest

from services.orchestrator.core.fairness import FairQueue


def everybody(tenant: str) -> bool:
    return True


def queue(**weights: float) -> FairQueue[str]:
    return FairQueue(weights)


def fill(waiting: FairQueue[str], *items: str) -> None:
    """Let items wait; each is its tenant, a number and perhaps `!` and a priority."""
    for item in items:
        name, _, priority = item.partition("!")
        waiting.push(
            name[0], priority=int(priority or 0), number=int(name[1:]), cost=1.0, item=name
        )


def drained(waiting: FairQueue[str]) -> list[str]:
    served = []
    while (item := waiting.pop(everybody)) is not None:
        served.append(item)
    return served


def test_one_tenant_is_served_in_the_order_in_which_it_came() -> None:
    waiting = queue()
    fill(waiting, "a1", "a2", "a3")
    assert waiting.items() == ["a1", "a2", "a3"]
    assert drained(waiting) == ["a1", "a2", "a3"]


def test_a_higher_priority_goes_first_within_its_tenant_only() -> None:
    waiting = queue()
    fill(waiting, "a1", "b2", "a3!9", "b4!1")
    assert drained(waiting) == ["a3", "b4", "a1", "b2"]


def test_who_comes_later_does_not_wait_behind_all_that_came_before() -> None:
    waiting = queue()
    fill(waiting, *(f"a{number}" for number in range(100)))
    assert [waiting.pop(everybody) for _ in range(3)] == ["a0", "a1", "a2"]
    fill(waiting, "b100")
    assert waiting.pop(everybody) == "b100"


def test_turns_are_in_the_proportion_of_the_weights() -> None:
    waiting = queue(a=3.0)
    fill(waiting, *(f"a{n}" for n in range(40)), *(f"b{n + 50}" for n in range(40)))
    served = [waiting.pop(everybody) or "" for _ in range(40)]
    assert sum(item[0] == "a" for item in served) == 30


def test_who_was_away_has_no_claim_to_catch_up() -> None:
    waiting = queue()
    fill(waiting, *(f"a{number}" for number in range(50)))
    for _ in range(20):
        waiting.pop(everybody)
    fill(waiting, *(f"b{number + 50}" for number in range(20)))
    served = [waiting.pop(everybody) or "" for _ in range(20)]
    assert sum(item[0] == "b" for item in served) == 10


def test_who_leaves_and_comes_back_does_not_jump_the_queue() -> None:
    waiting = queue(b=0.1)
    fill(waiting, *(f"a{number}" for number in range(30)))
    served = []
    for number in range(25):
        fill(waiting, f"b{number + 50}") if number + 50 not in served else None
        item = waiting.pop(everybody) or ""
        served.append(item)
        waiting.remove(number + 50)
    assert sum(item[0] == "b" for item in served) == 3


def test_a_tenant_that_may_not_go_is_passed_over_until_it_is_let() -> None:
    waiting = queue()
    fill(waiting, "a1", "b2", "a3")
    assert waiting.pop(lambda tenant: tenant != "a") == "b2"
    assert waiting.pop(everybody) is None
    waiting.let("a")
    waiting.let("nobody")
    assert drained(waiting) == ["a1", "a3"]


def test_dear_items_use_up_more_of_a_share() -> None:
    waiting = queue()
    for number in range(8):
        waiting.push("a", priority=0, number=number, cost=3.0, item="a")
        waiting.push("b", priority=0, number=number + 10, cost=1.0, item="b")
    served = [waiting.pop(everybody) for _ in range(8)]
    assert served.count("a") == 2


def test_what_leaves_the_queue_is_not_served() -> None:
    waiting = queue()
    fill(waiting, "a1", "a2", "b3")
    assert waiting.remove(1)
    assert waiting.remove(3)
    assert not waiting.remove(3)
    assert not waiting.remove(99)
    assert len(waiting) == 1
    assert drained(waiting) == ["a2"]


@pytest.mark.parametrize("tenants", [1, 3])
def test_nothing_is_kept_of_those_who_came_and_left(tenants: int) -> None:
    waiting = queue()
    fill(waiting, "z1")
    assert waiting.pop(lambda tenant: tenant != "z") is None
    for number in range(10, 5000):
        fill(waiting, f"{'abc'[number % tenants]}{number}")
        waiting.remove(number)
    assert waiting.kept < 500
    waiting.remove(1)
    assert (len(waiting), waiting.kept) == (0, 0)


def test_of_many_tenants_that_left_only_so_many_are_remembered() -> None:
    waiting = FairQueue[int]({})
    waiting.push("stays", priority=0, number=1, cost=1.0, item=1)
    for number in range(2, 3000):
        waiting.push(f"t{number}", priority=0, number=number, cost=1.0, item=number)
        waiting.remove(number)
    assert waiting.kept < 1500
