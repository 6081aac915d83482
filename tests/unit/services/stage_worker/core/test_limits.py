import pytest

from services.stage_worker.core import Limits


@pytest.mark.parametrize("name", ["stall_s", "outbox_bytes_max", "input_window_units"])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})
