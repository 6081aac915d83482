import pytest

from stagemesh.pipeline.graph import ancestors, cycle_in, in_order


def test_sources_come_first_and_else_the_order_of_the_file_holds() -> None:
    assert in_order({"c": ["b", "a"], "b": [], "a": []}) == ("b", "a", "c")
    assert in_order({"x": [], "y": [], "z": ["x"]}) == ("x", "y", "z")


def test_what_reads_from_a_cycle_has_no_place() -> None:
    assert in_order({"a": ["b"], "b": ["a"], "c": ["b"], "d": []}) == ("d",)


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        ({"a": []}, ()),
        ({"a": ["a"]}, ("a",)),
        ({"a": ["b"], "b": ["a"]}, ("b", "a")),
        ({"d": ["c"], "c": ["b"], "b": ["a"], "a": ["c"]}, ("a", "b", "c")),
        ({"a": [], "b": ["a"], "c": ["a", "b"]}, ()),
    ],
)
def test_a_cycle_is_told_in_the_direction_of_its_edges(
    sources: dict[str, list[str]], cycle: tuple[str, ...]
) -> None:
    assert cycle_in(sources) == cycle


def test_ancestors_are_what_is_read_directly_or_not() -> None:
    sources = {"a": [], "b": ["a"], "c": ["b"], "d": []}
    assert ancestors(sources, ["c"]) == {"a", "b"}
    assert ancestors(sources, ["d"]) == frozenset()


def test_ancestors_of_a_cycle_end() -> None:
    assert ancestors({"a": ["b"], "b": ["a"]}, ["a"]) == {"a", "b"}
