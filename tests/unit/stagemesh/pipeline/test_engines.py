import tomllib
from pathlib import Path

from stagemesh.pipeline.engines import BUILT_IN, gives


def test_the_table_names_what_this_distribution_publishes() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert set(BUILT_IN) == set(project["entry-points"]["stagemesh.engines"])
    bridges = project["entry-points"]["stagemesh.bridges"]
    assert {engine.bridge for engine in BUILT_IN.values()} <= set(bridges)


def test_a_synthetic_pool_gives_what_it_is_told_to() -> None:
    assert gives("synthetic", {}) == frozenset({"text"})
    assert gives("synthetic", {"gives": "image"}) == frozenset({"image"})
    assert gives("synthetic", {"gives": "text, audio"}) == frozenset({"text", "audio"})
    assert gives("synthetic", {"gives": ["image", "video"]}) == frozenset({"image", "video"})
    assert gives("synthetic", {"gives": [["image"]]}) is None


def test_nobody_can_tell_what_a_foreign_engine_gives() -> None:
    assert gives("theirs", {}) is None
