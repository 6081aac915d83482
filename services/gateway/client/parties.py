"""Who has to do with an exchange, and what passes between it and its consumer."""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from services.gateway.core.detached import OwnerName
from services.gateway.core.redrive import Loss
from stagemesh.link.core import Grant, Row
from stagemesh.outcome import ErrorInfo, Terminal

if TYPE_CHECKING:
    from services.gateway.client.exchange import Exchange

__all__ = ["Claims", "Keeper", "Owner", "State", "Taken"]


class State(Enum):
    """How far an exchange is."""

    OPEN = "open"
    ENDING = "ending"
    """Its end is decided here; the orchestrator has not answered yet, or is still to be told."""
    DONE = "done"


class Taken(msgspec.Struct, gc=False):
    """What waited: rows, and the request's end if these are the last."""

    rows: list[Row]
    terminal: Terminal | None


class Owner(Protocol):
    """The orchestrator that has an exchange."""

    def grant(self, exchange: "Exchange", grant: Grant) -> None:
        """Return credit."""

    def abort(self, exchange: "Exchange", cause: str) -> None:
        """Tell it to stop, and wait a while for its answer."""

    def handle_lost(self, exchange: "Exchange", handle_id: str) -> None:
        """Tell it that the bytes of an output could not be had, and are to be given again."""

    def leave(self, exchange: "Exchange") -> None:
        """Forget the exchange; what still comes of it means nothing."""

    def cede(self, exchange: "Exchange", *, here: bool) -> None:
        """Forget the exchange, which another gateway has, or will have, of this owner if `here`.

        Then this owner is told to wait for that one, and nothing more is said of what still comes:
        it ends nothing. Of another owner, this one is told that nobody listens.
        """


class Keeper(Protocol):
    """Whoever finds owners for exchanges."""

    def lost(self, exchange: "Exchange", loss: Loss, owner: "Owner | None") -> None:
        """Find an open exchange another owner than the one it had, or end it."""

    def release(self, exchange: "Exchange") -> None:
        """Forget an exchange that is done."""


class Claims(Protocol):
    """Whoever mints the epochs of an exchange that may outlive this gateway."""

    detach_s: float
    """How long its owner keeps it when this gateway is gone."""

    @property
    def owner_since(self) -> int:
        """The first of the epochs that its owner had in a row; 0 if the journal here is whole."""
        ...

    @property
    def sole_owner(self) -> OwnerName | None:
        """Who alone knows what the journal here does not; nobody if the journal here is whole."""
        ...

    def claim(self, owner: OwnerName, revision: str, give: Callable[[], None]) -> None:
        """Claim the next epoch for an owner, and `give` it the exchange if it could be had."""

    def leave(self, info: ErrorInfo) -> None:
        """Leave the exchange to another gateway; its consumer here is told why."""
