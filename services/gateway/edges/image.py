"""`POST /v1/images/generations`."""

from services.gateway.core.replies import ImagesWhole
from services.gateway.core.requests import read_image
from services.gateway.edges.call import JSON, Call
from services.gateway.edges.relay import Watched, collect

__all__ = ["image"]


async def image(call: Call) -> None:
    """Answer a prompt with images."""
    order = read_image(await call.body(), call.origin())
    call.names = order.names
    whole = ImagesWhole(
        call.head(order.request.model), bytes_max=call.backend.limits.reply_bytes_max
    )
    async with Watched(call, await call.open(order.request)) as watched:
        await collect(watched.exchange, whole.add)
        await call.answer(JSON, whole.close())
