import pytest

from services.stage_worker.bridges import find_bridge
from services.stage_worker.bridges.chat import ChatBridge
from stagemesh.errors import MeshError


@pytest.mark.parametrize("name", ["chat", "clauses", "condition", "prompt", "script", "transcript"])
def test_every_bridge_is_found_by_its_name(name: str) -> None:
    assert isinstance(find_bridge(name).reads_media, bool)


def test_a_name_means_the_same_bridge_each_time() -> None:
    assert find_bridge("chat") is ChatBridge


def test_a_name_that_nobody_has_is_an_error() -> None:
    with pytest.raises(MeshError, match="none such"):
        find_bridge("none such")
