"""The serving end of a link: the body of a servicer's `Attach`."""

from collections.abc import Callable
from typing import Final

import grpc
from grpc import aio

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump.link import Link, LinkEvents
from stagemesh.link.pump.policy import LinkEnd, LinkPolicy
from stagemesh.link.pump.wires import ServedWire

__all__ = ["serve_link"]

_STATUS: Final = {
    LinkEnd.PROTOCOL: grpc.StatusCode.FAILED_PRECONDITION,
    LinkEnd.OUTBOX_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


async def serve_link(
    context: aio.ServicerContext[link_pb2.LinkMessage, link_pb2.LinkMessage],
    *,
    hello: Callable[[], link_pb2.Hello],
    ping: Callable[[], link_pb2.Ping],
    events: LinkEvents,
    policy: LinkPolicy,
) -> None:
    """Serve one link to its end.

    The peer learns the reason as the status of the call: OK if it closed the link itself.
    """
    # Apart from the first write: if that is cut short, gRPC could not send the status any more.
    await context.send_initial_metadata(())
    link = Link(ServedWire(context), hello=hello, ping=ping, events=events, policy=policy)
    reason = await link.run()
    word = LinkEnd(reason.partition(":")[0])
    if word not in {LinkEnd.PEER_CLOSED, LinkEnd.BROKEN}:
        await context.abort(_STATUS.get(word, grpc.StatusCode.UNAVAILABLE), reason)
