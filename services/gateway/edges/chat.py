"""`POST /v1/chat/completions`."""

from services.gateway.core.replies import ChatStream, ChatWhole
from services.gateway.core.requests import read_chat
from services.gateway.edges.call import JSON, Call
from services.gateway.edges.relay import SSE, Watched, collect, stream

__all__ = ["chat"]


async def chat(call: Call) -> None:
    """Answer a conversation, as events or whole."""
    order = read_chat(await call.body(), call.origin())
    call.names = order.names
    head = call.head(order.request.model)
    async with Watched(call, await call.open(order.request)) as watched:
        if order.stream:
            await stream(call, watched.exchange, ChatStream(head, order), SSE)
            return
        whole = ChatWhole(head, order, bytes_max=call.backend.limits.reply_bytes_max)
        terminal = await collect(watched.exchange, whole.add)
        await call.answer(JSON, whole.close(terminal.usage))
