"""What becomes of a request whose owner is lost."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from services.gateway.client import Exchange
from services.gateway.client.inputs import ExchangeInput
from services.gateway.client.parties import Owner
from services.gateway.client.redrives import Redrives
from services.gateway.core.detached import OwnerName
from services.gateway.core.inputs import InputLog
from services.gateway.core.journal import RequestJournal
from services.gateway.core.redrive import Loss, LossKind, Redrive, RedrivePolicy
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, Request, lane_of
from stagemesh.outcome import ErrorInfo, error_for

TEXT = lane_of(0, 0, Modality.TEXT)


class Nobody:
    """Keeps an exchange that gets no owner."""

    def lost(self, exchange: Exchange, loss: Loss, owner: Owner | None) -> None:
        """See `Keeper`."""

    def release(self, exchange: Exchange) -> None:
        """See `Keeper`."""


def opened(*, answer_bytes_max: int, input_bytes_max: int) -> Exchange:
    async def fetch(body: Body) -> Body:
        return body

    return Exchange(
        Request(model="m", messages=(), modalities=(Modality.TEXT,)),
        request_id="req_1",
        window=(100, 1_000),
        keeper=Nobody(),
        journal=RequestJournal(1, (Modality.TEXT,), bytes_max=answer_bytes_max),
        redrive=Redrive(RedrivePolicy()),
        deadline_at_s=0.0,
        fetch=fetch,
        on_drop=lambda: None,
        input=ExchangeInput(InputLog(input_bytes_max)),
    )


@pytest.mark.parametrize(("longest", "what"), [((1, 9_999), "answer"), ((9_999, 1), "input")])
async def test_a_request_that_outgrew_what_is_kept_of_it_is_told_which_side_did(
    longest: tuple[int, int], what: str
) -> None:
    exchange = opened(answer_bytes_max=longest[0], input_bytes_max=longest[1])
    exchange.push(Row(0, TEXT, 0, 1, "some words"))
    assert exchange.input is not None
    exchange.input.append("some words")
    loss = Loss(kind=LossKind.LINK, info=error_for("link_lost"))
    Redrives(lambda: [], open_bytes_max=1_000).lost(exchange, loss, None)
    terminal = (await exchange.take()).terminal
    assert terminal is not None
    assert terminal.error is not None
    assert terminal.error.reason == "link_lost"
    assert terminal.error.message.endswith(f"The {what} is too long to go on.")


@dataclass
class FakePeer:
    """An orchestrator that takes what it is given."""

    name: OwnerName
    open_requests: int = 0
    takes_work: bool = True
    gone: bool = False
    room: bool = True
    given: list[str] = field(default_factory=list)

    def has_model(self, model: str) -> bool:
        """See `Peer`."""
        return True

    def has_room(self, size_bytes: int) -> bool:
        """See `Peer`."""
        return self.room

    def revision_of(self, model: str) -> str:
        """See `Peer`."""
        return "r1"

    def give(self, exchange: Exchange, now_s: float, *, open_bytes_max: int) -> None:
        """See `Peer`."""
        if open_bytes_max == 0:
            raise MeshError(error_for("body_too_large"))
        self.given.append(exchange.request_id)


@dataclass
class Claimed:
    """Writes down what is claimed, and gives when a test says so."""

    sole_owner: OwnerName | None = None
    detach_s: float = 5.0
    owner_since: int = 0
    asked: list[tuple[OwnerName, str]] = field(default_factory=list)
    give: Callable[[], None] = lambda: None

    def claim(self, owner: OwnerName, revision: str, give: Callable[[], None]) -> None:
        """See `Claims`."""
        self.asked.append((owner, revision))
        self.give = give

    def leave(self, info: ErrorInfo) -> None:
        """See `Claims`."""


LINK_LOST = Loss(kind=LossKind.LINK, info=error_for("link_lost"))


def _lost(
    peers: list[FakePeer], claims: Claimed, owner: FakePeer | None = None, *, bytes_max: int = 9
) -> tuple[Exchange, Redrives]:
    """Lose the owner of an exchange, and let the wait before the next one be over."""
    exchange = opened(answer_bytes_max=9_999, input_bytes_max=9_999)
    exchange.claims = claims
    given: Any = peers
    redrives = Redrives(lambda: given, open_bytes_max=bytes_max)
    redrives.lost(exchange, LINK_LOST, cast("Any", owner))
    _try(exchange)
    return exchange, redrives


def _try(exchange: Exchange) -> None:
    assert exchange.retry is not None
    exchange.retry._run()


async def test_an_owner_is_given_it_once_its_epoch_is_claimed() -> None:
    peer, claims = FakePeer(OwnerName("o", 1)), Claimed()
    _lost([peer], claims)
    assert (claims.asked, peer.given) == ([(peer.name, "r1")], [])
    claims.give()
    assert peer.given == ["req_1"]


async def test_an_owner_that_goes_while_its_epoch_is_claimed_is_no_owner() -> None:
    peer, claims = FakePeer(OwnerName("o", 1)), Claimed()
    exchange, _ = _lost([peer], claims)
    peer.gone = True
    claims.give()
    assert peer.given == []
    peer.gone = False
    _try(exchange)
    claims.give()
    assert (len(claims.asked), peer.given) == (2, ["req_1"])


async def test_a_request_that_ends_while_its_epoch_is_claimed_is_given_to_nobody() -> None:
    peer, claims = FakePeer(OwnerName("o", 1)), Claimed()
    exchange, _ = _lost([peer], claims)
    exchange.abort("nobody wants it")
    claims.give()
    assert peer.given == []


async def test_what_has_become_too_large_ends() -> None:
    peer, claims = FakePeer(OwnerName("o", 1)), Claimed()
    exchange, _ = _lost([peer], claims, bytes_max=0)
    claims.give()
    terminal = (await exchange.take()).terminal
    assert terminal is not None
    assert terminal.error is not None
    assert terminal.error.reason == "body_too_large"


async def test_who_alone_knows_what_was_made_has_it_again_whatever_else_is_there() -> None:
    idle = FakePeer(OwnerName("idle", 1))
    sole = FakePeer(OwnerName("sole", 1), open_requests=9, takes_work=False)
    claims = Claimed(sole_owner=sole.name)
    _lost([idle, sole], claims)
    assert [name for name, _ in claims.asked] == [sole.name]


async def test_who_alone_knows_but_gave_it_back_or_is_gone_is_not_waited_for() -> None:
    idle, sole = FakePeer(OwnerName("idle", 1)), FakePeer(OwnerName("sole", 1))
    claims = Claimed(sole_owner=sole.name)
    _lost([idle, sole], claims, owner=sole)
    assert [name for name, _ in claims.asked] == [idle.name]
    claims = Claimed(sole_owner=OwnerName("sole", 2))
    _lost([idle], claims)
    assert [name for name, _ in claims.asked] == [idle.name]
