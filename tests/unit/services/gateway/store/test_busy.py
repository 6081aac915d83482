"""How long a store that others hold is borne."""

import pytest

from services.gateway.store import StoreBusy, insist
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for


class Held:
    """A store that fails so often before it writes."""

    def __init__(self, *errors: MeshError) -> None:
        self.errors = list(errors)
        self.tries = 0

    async def write(self) -> str:
        """Write, or fail."""
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return "written"


BUSY = StoreBusy(error_for("internal_error", "locked"))
BROKEN = MeshError(error_for("internal_error", "disk full"))


async def test_a_busy_store_is_asked_again() -> None:
    held = Held(BUSY, BUSY)
    assert await insist(held.write, within_s=5.0) == "written"
    assert held.tries == 3


async def test_but_not_for_ever() -> None:
    held = Held(*[BUSY] * 9)
    with pytest.raises(StoreBusy):
        await insist(held.write, within_s=5.0)
    assert held.tries == 4
    held = Held(*[BUSY] * 9)
    with pytest.raises(StoreBusy):
        await insist(held.write, within_s=0.0)
    assert held.tries == 1


async def test_any_other_failure_is_the_last() -> None:
    held = Held(BUSY, BROKEN)
    with pytest.raises(MeshError, match="disk full"):
        await insist(held.write, within_s=5.0)
    assert held.tries == 2
