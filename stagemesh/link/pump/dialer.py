"""The calling end of a link: dials one address for as long as it is wanted."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from grpc import aio

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump.link import Link, LinkEvents
from stagemesh.link.pump.policy import Backoff, LinkPolicy
from stagemesh.link.pump.wires import CallWire

__all__ = ["Attach", "Dialer"]

Attach = Callable[[], aio.StreamStreamCall[link_pb2.LinkMessage, link_pb2.LinkMessage]]
"""Opens the call of a link; a stub's `Attach` is one. Whoever gave it owns the channel."""

_BACKOFF: Final = Backoff()

_log = logging.getLogger(__name__)


class Dialer:
    """Keeps one link to one address; `name` is what logs call that address."""

    def __init__(
        self,
        attach: Attach,
        *,
        hello: Callable[[], link_pb2.Hello],
        ping: Callable[[], link_pb2.Ping],
        events: LinkEvents,
        policy: LinkPolicy,
        backoff: Backoff = _BACKOFF,
        name: str = "",
    ) -> None:
        self.name = name
        self.link: Link | None = None
        """The link that is being dialled or is open, if any."""
        self.failures = 0
        """How many dials in a row came to nothing."""
        self._attach = attach
        self._hello = hello
        self._ping = ping
        self._events = events
        self._policy = policy
        self._backoff = backoff

    async def run(self) -> None:
        """Dial, serve the link to its end, and dial again, until cancelled."""
        told = ""
        while True:
            link, reason = await self._once()
            if link.attached:
                self.failures = 0
                told = ""
            else:
                self.failures += 1
                if reason != told:  # An address that is down all day is news once.
                    _log.warning("no_link", extra={"address": self.name, "reason": reason})
                    told = reason
            await asyncio.sleep(self._backoff.delay_s(self.failures, random.random()))

    async def _once(self) -> tuple[Link, str]:
        """Dial once; return the link, which is over, and the reason."""
        call = self._attach()
        try:
            self.link = link = Link(
                CallWire(call),
                hello=self._hello,
                ping=self._ping,
                events=self._events,
                policy=self._policy,
            )
            return link, await link.run()
        finally:
            self.link = None
            call.cancel()
