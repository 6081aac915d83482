import pytest

from services.stage_worker.core.fences import Fences, Recent


@pytest.mark.invariant("ORCH-INV-205")
def test_a_fence_only_rises() -> None:
    fences = Fences()
    assert fences.raise_to("a", 2, 0.0)
    assert not fences.raise_to("a", 1, 0.0)
    assert fences.raise_to("a", 2, 0.0)
    assert fences.epoch("a") == 2
    assert fences.epoch("b") == 0


def test_the_request_that_was_heard_of_longest_ago_is_forgotten_first() -> None:
    fences = Fences(requests_max=2)
    for request_id in ("a", "b", "a", "c"):
        fences.raise_to(request_id, 1, 0.0)
    assert len(fences) == 2
    assert fences.epoch("b") == 0
    assert fences.epoch("a") == 1


def test_a_request_of_which_nothing_is_heard_any_more_is_forgotten() -> None:
    fences = Fences(keep_s=30.0)
    fences.raise_to("a", 2, 0.0)
    fences.raise_to("b", 1, 20.0)
    fences.raise_to("a", 1, 29.0)
    fences.raise_to("c", 1, 50.0)
    assert (fences.epoch("a"), fences.epoch("b"), len(fences)) == (2, 1, 3)
    fences.raise_to("c", 1, 51.0)
    assert (fences.epoch("a"), fences.epoch("b"), len(fences)) == (2, 0, 2)
    fences.raise_to("c", 1, 200.0)
    assert len(fences) == 1


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
