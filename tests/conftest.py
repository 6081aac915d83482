"""What every tier of tests has in common: its marker, its limits, and how hard it tries."""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

TESTS: Final = Path(__file__).parent
TIERS: Final = ("unit", "property", "contract", "e2e", "chaos", "perf")

FORBIDDEN_IN_MEMORY: Final = frozenset(
    {"socket.bind", "socket.connect", "socket.sendto", "subprocess.Popen"}
)
"""What a test of the tiers `unit` and `property` may not do, by the name of its audit event."""

# A program that a test starts says where it was when a signal ended it.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

# The machine is shared, so no example has a deadline; pytest-timeout ends what hangs.
_SLOW_MACHINE: Final = (HealthCheck.too_slow,)
settings.register_profile("dev", deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.register_profile(
    "ci", deadline=None, suppress_health_check=_SLOW_MACHINE, max_examples=1000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


class _Guard:
    """An audit hook: it cannot be removed, so it is armed for one test after the other."""

    def __init__(self) -> None:
        self.armed = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.armed and event in FORBIDDEN_IN_MEMORY:
            raise RuntimeError(f"a test of this tier stays in memory: {event}{arguments}")


_guard: Final = _Guard()
sys.addaudithook(_guard)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the tier whose folder it lies in."""
    for item in items:
        tier = item.path.relative_to(TESTS).parts[0]
        if tier in TIERS:
            item.add_marker(tier)


@pytest.fixture(autouse=True)
def memory_only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let tests of the tiers `unit` and `property` neither connect, start programs, nor sleep."""
    if not any(request.node.get_closest_marker(tier) for tier in ("unit", "property")):
        yield
        return
    sleep = asyncio.sleep

    def yield_only(delay: float, result: Any = None) -> Coroutine[Any, Any, Any]:
        # The code under test may back off; a test that waits for it forces the order instead.
        if delay > 0 and Path(sys._getframe(1).f_code.co_filename).is_relative_to(TESTS):
            raise RuntimeError(f"a test of this tier does not wait: asyncio.sleep({delay})")
        return sleep(delay, result)

    def stand_still(seconds: float) -> None:
        raise RuntimeError(f"a test of this tier does not wait: time.sleep({seconds})")

    monkeypatch.setattr(asyncio, "sleep", yield_only)
    monkeypatch.setattr(time, "sleep", stand_still)
    _guard.armed = True
    try:
        yield
    finally:
        _guard.armed = False
