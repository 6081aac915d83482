"""Tombstones."""

from services.orchestrator.core.tombstones import Tombstones


def test_a_tombstone_is_found_until_its_time_is_over() -> None:
    stones = Tombstones(count_max=10, keep_s=30.0)
    stones.put("a", epoch=2, aborted=False, now_s=1.0)
    found = stones.find("a", 30.9)
    assert found is not None
    assert (found.epoch, found.aborted) == (2, False)
    assert stones.find("a", 31.0) is None
    assert stones.find("b", 2.0) is None


def test_an_abort_and_a_higher_epoch_are_not_forgotten() -> None:
    stones = Tombstones(count_max=10, keep_s=30.0)
    stones.put("a", epoch=3, aborted=True, now_s=1.0)
    stones.put("a", epoch=1, aborted=False, now_s=2.0)
    found = stones.find("a", 31.5)
    assert found is not None
    assert (found.epoch, found.aborted) == (3, True)
    assert len(stones) == 1


def test_beyond_the_bound_the_oldest_goes() -> None:
    stones = Tombstones(count_max=2, keep_s=30.0)
    for name in ("a", "b", "c"):
        stones.put(name, epoch=1, aborted=False, now_s=1.0)
    assert stones.find("a", 1.0) is None
    assert stones.find("b", 1.0) is not None
    assert len(stones) == 2


def test_a_sweep_drops_what_is_over_and_tells_the_next_time() -> None:
    stones = Tombstones(count_max=10, keep_s=30.0)
    stones.put("a", epoch=1, aborted=False, now_s=1.0)
    stones.put("b", epoch=1, aborted=False, now_s=5.0)
    assert stones.sweep(31.0) == 35.0
    assert len(stones) == 1
    assert stones.sweep(35.0) is None
    assert len(stones) == 0
