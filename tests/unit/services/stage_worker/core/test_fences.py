import pytest

from services.stage_worker.core.fences import Fences, Recent


@pytest.mark.invariant("ORCH-INV-205")
def test_a_fence_only_rises() -> None:
    fences = Fences()
    assert fences.raise_to("a", 2)
    assert not fences.raise_to("a", 1)
    assert fences.raise_to("a", 2)
    assert fences.epoch("a") == 2
    assert fences.epoch("b") == 0


def test_the_request_that_was_heard_of_longest_ago_is_forgotten_first() -> None:
    fences = Fences(requests_max=2)
    for request_id in ("a", "b", "a", "c"):
        fences.raise_to(request_id, 1)
    assert len(fences) == 2
    assert fences.epoch("b") == 0
    assert fences.epoch("a") == 1


def test_recent_items_are_known_until_others_push_them_out() -> None:
    recent: Recent[int] = Recent(2)
    assert recent.add(1)
    assert not recent.add(1)
    recent.add(2)
    recent.add(3)
    assert 1 not in recent
    assert recent.discard(3)
    assert not recent.discard(3)
    assert len(recent) == 1
