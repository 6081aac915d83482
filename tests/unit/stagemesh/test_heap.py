import gc
from collections.abc import Iterator

import pytest

from stagemesh.heap import freeze_heap


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """The collector is left as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Kept:
    """Something that the collector knows."""


def test_what_there_is_now_is_nothing_to_the_collector_any_more() -> None:
    kept = [Kept()]
    freeze_heap()
    assert not any(one is kept[0] for one in gc.get_objects())


def test_what_was_garbage_before_is_not_kept_for_ever() -> None:
    gc.disable()
    try:
        loop: list[object] = []
        loop.append(loop)
        del loop
        freeze_heap()
    finally:
        gc.enable()
    gc.unfreeze()
    assert gc.collect() == 0


def test_full_collections_are_as_rare_as_asked() -> None:
    young, middle, full = gc.get_threshold()
    freeze_heap()
    assert gc.get_threshold() == (young, middle, full)
    freeze_heap(full_after=7)
    assert gc.get_threshold() == (young, middle, 7)
