import pytest

from services.stage_worker.engines import find_engine
from services.stage_worker.engines.synthetic_engine import create
from stagemesh.errors import BadSettings


def test_an_engine_is_found_by_its_name() -> None:
    assert find_engine("synthetic") is create


def test_a_name_that_nobody_has_is_an_error() -> None:
    with pytest.raises(BadSettings, match="none such"):
        find_engine("none such")
