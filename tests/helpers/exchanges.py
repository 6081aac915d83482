"""Exchanges whose owner and keeper write down what they are told."""

import asyncio
from collections.abc import Callable

import msgspec

from services.gateway.client import Exchange
from services.gateway.client.parties import Owner
from services.gateway.core.journal import RequestJournal
from services.gateway.core.redrive import Loss, LossKind, Redrive, RedrivePolicy
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Modality, Request, lane_of
from stagemesh.outcome import error_for

__all__ = ["IMAGE", "LOST", "TEXT", "Notes", "open_exchange", "token"]

TEXT = lane_of(0, 0, Modality.TEXT)
IMAGE = lane_of(1, 0, Modality.IMAGE)


class Notes:
    """The owner and the keeper of an exchange, who write down what they are told."""

    def __init__(self) -> None:
        self.granted: list[tuple[int, int]] = []
        self.aborts: list[str] = []
        self.handles: list[str] = []
        self.left = 0
        self.ceded: list[bool] = []
        self.losses: list[tuple[LossKind, Owner | None]] = []
        self.released = 0
        self.told = asyncio.Event()
        self.dropped = 0
        self.fetch: Callable[[Body], Body] = lambda body: msgspec.structs.replace(
            body, inline=b"bytes", handle=None
        )

    def grant(self, exchange: Exchange, grant: Grant) -> None:
        """See `Owner`."""
        self.granted.append((grant.units, grant.bytes))

    def abort(self, exchange: Exchange, cause: str) -> None:
        """See `Owner`."""
        self.aborts.append(cause)

    def handle_lost(self, exchange: Exchange, handle_id: str) -> None:
        """See `Owner`."""
        self.handles.append(handle_id)
        self.told.set()

    def leave(self, exchange: Exchange) -> None:
        """See `Owner`."""
        self.left += 1

    def cede(self, exchange: Exchange, *, here: bool) -> None:
        """See `Owner`."""
        self.ceded.append(here)

    def lost(self, exchange: Exchange, loss: Loss, owner: Owner | None) -> None:
        """See `Keeper`."""
        self.losses.append((loss.kind, owner))
        self.told.set()

    def release(self, exchange: Exchange) -> None:
        """See `Keeper`."""
        self.released += 1

    def drop(self) -> None:
        """Count a row that had come before."""
        self.dropped += 1


def open_exchange(notes: Notes, *, units: int = 4, size: int = 1000) -> Exchange:
    """Open an exchange of text and images."""

    async def fetch(body: Body) -> Body:
        return notes.fetch(body)

    modalities = (Modality.TEXT, Modality.IMAGE)
    exchange = Exchange(
        Request(model="m", messages=(), modalities=modalities),
        request_id="req_1",
        window=(units, size),
        keeper=notes,
        journal=RequestJournal(1, modalities, bytes_max=1_000),
        redrive=Redrive(RedrivePolicy(epochs_max=2)),
        deadline_at_s=0.0,
        fetch=fetch,
        on_drop=notes.drop,
    )
    exchange.opened(notes, 7, 0.0)
    return exchange


LOST = Loss(kind=LossKind.LINK, info=error_for("link_lost"))


def token(pos: int, text: str = "x") -> Row:
    """Give a row of one token."""
    return Row(7, TEXT, pos, 1, text)
