"""Who a request comes from, what it wishes, and what it will be told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from services.orchestrator.core.strangers import Strangers
from stagemesh.media import Params
from stagemesh.outcome import ErrorInfo, Outcome

if TYPE_CHECKING:
    from services.orchestrator.core.request import OpenRequest

__all__ = ["NO_WISHES", "Client", "Verdict", "Wishes"]


@dataclass(slots=True, eq=False)
class Client:
    """One client link, and its open requests by slot."""

    link: int
    window_units: int
    window_bytes: int
    mirrors: bool = False
    """It keeps the journal, and opens its requests elsewhere when this process is lost."""
    requests: dict[int, "OpenRequest"] = field(default_factory=dict)
    strangers: Strangers = field(default_factory=Strangers)


@dataclass(slots=True, frozen=True)
class Verdict:
    """How a request is going to end."""

    outcome: Outcome
    error: ErrorInfo | None


class Wishes(NamedTuple):
    """What a client tunes: for the request as a whole, and at stages by their names."""

    params: Params = Params()
    by_stage: Mapping[str, Params] = {}


NO_WISHES: Final = Wishes()
