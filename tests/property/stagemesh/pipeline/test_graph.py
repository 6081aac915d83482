from hypothesis import given
from hypothesis import strategies as st

from stagemesh.pipeline.graph import ancestors, cycle_in, in_order

Graph = dict[str, list[str]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    return {node: draw(st.lists(st.sampled_from(nodes), unique=True, max_size=4)) for node in nodes}


@given(graphs())
def test_either_everything_has_a_place_or_there_is_a_cycle(graph: Graph) -> None:
    order, cycle = in_order(graph), cycle_in(graph)
    assert (len(order) == len(graph)) is (cycle == ())
    for at, node in enumerate(order):
        assert set(graph[node]) <= set(order[:at])
    for node, after in zip(cycle, (*cycle[1:], *cycle[:1]), strict=True):
        assert node in graph[after]


@given(graphs())
def test_ancestors_are_closed(graph: Graph) -> None:
    for node in graph:
        above = ancestors(graph, [node])
        assert set(graph[node]) <= above
        assert all(set(graph[other]) <= above for other in above)
