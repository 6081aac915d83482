from typing import Literal

import pytest

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump import PROTOCOL, WireFault
from stagemesh.link.pump.greeting import greet, read_greeting
from tests.helpers.link_ends import hello


def test_a_greeting_is_read_as_it_was_made_with_the_protocol_filled_in() -> None:
    read = read_greeting(greet(hello("w-7")))
    assert read.protocol == PROTOCOL
    read.protocol = 0
    assert read == hello("w-7")


def test_another_protocol_is_refused_with_both_numbers() -> None:
    message = greet(hello())
    message.frames[0].hello.protocol = 99
    with pytest.raises(WireFault, match="speaks protocol 99, this build 1 only"):
        read_greeting(message)


@pytest.mark.parametrize("field", ["service", "id", "incarnation"])
def test_a_greeting_must_say_who_speaks(field: Literal["service", "id", "incarnation"]) -> None:
    message = greet(hello())
    message.frames[0].hello.ClearField(field)
    with pytest.raises(WireFault, match="lacks a service, an id or an incarnation"):
        read_greeting(message)


def test_the_first_message_is_a_hello_and_nothing_else() -> None:
    with pytest.raises(WireFault, match="not a Hello alone"):
        read_greeting(link_pb2.LinkMessage())
    message = greet(hello())
    message.grants.slot.append(1)
    with pytest.raises(WireFault, match="not a Hello alone"):
        read_greeting(message)
    message = link_pb2.LinkMessage(frames=[link_pb2.Frame(ping=link_pb2.Ping())])
    with pytest.raises(WireFault, match="first frame is ping"):
        read_greeting(message)
