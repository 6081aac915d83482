"""The first message each way: who speaks, and whether both speak the same."""

from typing import Final

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump.codec import WireFault

__all__ = ["PROTOCOL", "greet", "read_greeting"]

PROTOCOL: Final = 1
"""The number of the vocabulary that this build speaks; every build that differs is refused."""


def greet(hello: link_pb2.Hello) -> link_pb2.LinkMessage:
    """Make the first message of a link; the protocol number is filled in here."""
    message = link_pb2.LinkMessage()
    first = message.frames.add().hello
    first.CopyFrom(hello)
    first.protocol = PROTOCOL
    return message


def read_greeting(message: link_pb2.LinkMessage) -> link_pb2.Hello:
    """Read the first message of a link.

    Raises:
        WireFault: If it is not one Hello and nothing else, or does not say who speaks, or the peer
            speaks another protocol.
    """
    frames = message.frames
    if len(frames) != 1 or message.HasField("outputs") or message.HasField("grants"):
        raise WireFault("the first message is not a Hello alone")
    if not frames[0].HasField("hello"):
        raise WireFault(f"the first frame is {frames[0].WhichOneof('kind')}, not hello")
    hello = frames[0].hello
    if hello.protocol != PROTOCOL:
        raise WireFault(f"the peer speaks protocol {hello.protocol}, this build {PROTOCOL} only")
    if not hello.id or not hello.incarnation or not hello.service:
        raise WireFault("the Hello lacks a service, an id or an incarnation")
    return hello
