"""Order and reachability in small directed graphs, given as each node's sources."""

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Sources", "ancestors", "cycle_in", "in_order"]

Sources = Mapping[str, Sequence[str]]


def in_order(sources: Sources) -> tuple[str, ...]:
    """Put sources before what reads them; of those that could be next, the first given is.

    What is on a cycle, or reads from one, is left out.
    """
    order: list[str] = []
    waiting = list(sources)
    while True:
        ready = next((node for node in waiting if set(sources[node]) <= set(order)), None)
        if ready is None:
            return tuple(order)
        order.append(ready)
        waiting.remove(ready)


def cycle_in(sources: Sources) -> tuple[str, ...]:
    """Find a cycle, as its nodes in the direction of the edges; empty if there is none."""
    placed = set(in_order(sources))
    # Each node that could not be placed reads from another such, so walking against the edges
    # must come back to where it has been.
    trail = [node for node in sources if node not in placed][:1]
    while trail:
        source = next(source for source in sources[trail[-1]] if source not in placed)
        if source in trail:
            return tuple(reversed(trail[trail.index(source) :]))
        trail.append(source)
    return ()


def ancestors(sources: Sources, nodes: Iterable[str]) -> frozenset[str]:
    """Give everything that the nodes read from, directly or not."""
    found: set[str] = set()
    ahead = [source for node in nodes for source in sources[node]]
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead.extend(sources[node])
    return frozenset(found)
