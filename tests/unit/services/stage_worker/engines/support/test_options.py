from typing import Any

import msgspec
import pytest

from services.stage_worker.engines.base import EngineConfig
from services.stage_worker.engines.support.options import Count, Positive, read_options
from stagemesh.errors import BadSettings


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some options."""

    slots: Count = 4
    seconds: Positive = 1.5
    sizes: list[tuple[int, int]] = []


def config(**options: Any) -> EngineConfig:
    return EngineConfig(pool="talker", replica_id="talker-0", model="joe", options=options)


def test_options_are_read_with_their_defaults() -> None:
    assert read_options(config(slots=7), Options) == Options(slots=7)


def test_sizes_from_yaml_are_lists() -> None:
    assert read_options(config(sizes=[[32, 64]]), Options).sizes == [(32, 64)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slot": 1}, "`slot`"),
        ({"slots": "many"}, "slots: Expected `int`, got `str`"),
        ({"slots": 0}, "slots: Expected `int` >= 1"),
        ({"seconds": 0.0}, "seconds: Expected `float` > 0"),
        ({"sizes": [[32]]}, "sizes[0]: "),
    ],
)
def test_a_mistake_names_the_pool_and_the_key(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSettings) as caught:
        read_options(config(**options), Options)
    assert str(caught.value).startswith("pool talker: options: ")
    assert said in str(caught.value)
