"""Which orchestrator gets the next request."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from services.gateway.core.detached import OwnerName
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["Candidate", "choose", "named"]


class Candidate(Protocol):
    """What is known of one linked orchestrator."""

    @property
    def name(self) -> OwnerName:
        """Which life of which orchestrator it is."""
        ...

    @property
    def open_requests(self) -> int:
        """How many requests of this gateway it has."""
        ...

    @property
    def takes_work(self) -> bool:
        """Whether it is neither draining nor delisted."""
        ...

    def has_model(self, model: str) -> bool:
        """Whether it publishes a pipeline under this name."""
        ...


_C = TypeVar("_C", bound=Candidate)


def choose(candidates: Iterable[_C], model: str) -> _C:
    """Choose the orchestrator with the fewest open requests that can take one for a model.

    Raises:
        MeshError: With `LINK_LOST` if there is none at all, with `DRAINING` if all are being
            stopped, with `NOT_FOUND` if none has the model.
    """
    linked = list(candidates)
    if not linked:
        raise MeshError(error_for("no_orchestrator", retry_after_s=1.0))
    willing = [candidate for candidate in linked if candidate.takes_work]
    if not willing:
        raise MeshError(error_for("draining", retry_after_s=1.0))
    able = [candidate for candidate in willing if candidate.has_model(model)]
    if not able:
        raise MeshError(
            error_for("model_not_found", f"The model '{model}' does not exist.", param="model")
        )
    return min(able, key=lambda candidate: candidate.open_requests)


def named(candidates: Iterable[_C], owner: OwnerName) -> _C | None:
    """Find one orchestrator, whatever else may be said of it, if it is linked."""
    return next((candidate for candidate in candidates if candidate.name == owner), None)
