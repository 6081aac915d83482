"""Which orchestrator gets a request."""

from dataclasses import dataclass

import pytest

from services.gateway.core.choice import choose, named
from services.gateway.core.detached import OwnerName
from stagemesh.errors import MeshError
from stagemesh.outcome import Outcome, outcome_of, status_of

SOMEBODY = OwnerName("somebody", 1)


@dataclass
class Known:
    """An orchestrator as the chooser sees it."""

    open_requests: int = 0
    takes_work: bool = True
    models: tuple[str, ...] = ("m",)
    name: OwnerName = SOMEBODY

    def has_model(self, model: str) -> bool:
        """See `Candidate`."""
        return model in self.models


def test_the_one_with_the_fewest_open_requests_that_has_the_model_is_chosen() -> None:
    idle = Known(0, models=("other",))
    busy, calm, draining = Known(5), Known(2), Known(0, takes_work=False)
    assert choose([idle, busy, calm, draining], "m") is calm
    assert choose([idle, busy, calm, draining], "other") is idle


@pytest.mark.parametrize(
    ("known", "reason", "http"),
    [
        ([], "no_orchestrator", 503),
        ([Known(takes_work=False)], "draining", 429),
        ([Known(models=())], "model_not_found", 404),
        ([Known(models=()), Known(takes_work=False)], "model_not_found", 404),
    ],
)
def test_a_request_that_nobody_can_take_is_refused_for_its_reason(
    known: list[Known], reason: str, http: int
) -> None:
    with pytest.raises(MeshError) as caught:
        choose(known, "m")
    info = caught.value.info
    assert info.reason == reason
    assert outcome_of(info.code) is Outcome.REJECTED
    assert status_of(outcome_of(info.code), info.code).http == http


def test_a_process_is_found_by_its_life_whatever_else_is_said_of_it() -> None:
    before, now = OwnerName("o", 1), OwnerName("o", 2)
    draining = Known(takes_work=False, models=(), name=now)
    assert named([Known(), draining], now) is draining
    assert named([draining], before) is None
