"""What becomes of a request whose owner is lost."""

import pytest

from services.gateway.client import Exchange
from services.gateway.client.exchange import Owner
from services.gateway.client.inputs import ExchangeInput
from services.gateway.client.redrives import Redrives
from services.gateway.core.inputs import InputLog
from services.gateway.core.journal import RequestJournal
from services.gateway.core.redrive import Loss, LossKind, Redrive, RedrivePolicy
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, Request, lane_of
from stagemesh.outcome import error_for

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
