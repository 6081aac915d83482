"""The memory of a process that serves for long."""

import gc

__all__ = ["freeze_heap"]


def freeze_heap(*, full_after: int | None = None) -> None:
    """Spare the garbage collector what there is now: code, types and whatever lives to the end.

    It would look through all of that in each full collection, and nothing else goes on meanwhile:
    20 ms and more for what the imports of a service make. Call it once, when the process is about
    to serve.

    `full_after` is how many collections of the middle generation bring a full one; more than
    Python's 10 is right where hardly anything lives long and then is garbage.
    """
    gc.collect()
    gc.freeze()
    if full_after is not None:
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, full_after)
