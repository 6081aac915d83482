"""Asks every other orchestrator at once.

Discovery names them by their link ports, in the group that gateways read too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from grpc import aio

from stagemesh.api.orchestrator.v1 import peer_service_pb2_grpc
from stagemesh.discovery import Endpoint, Source

__all__ = ["Answers", "Method", "Peers"]

ASK_S: Final = 1.0
"""How long a peer has to answer; whoever is lost or stands still costs no more than that."""

GROUP: Final = "orchestrators"

_log = logging.getLogger(__name__)

Q = TypeVar("Q")
T = TypeVar("T")
Stub = peer_service_pb2_grpc.PeerServiceStub
Method = aio.UnaryUnaryMultiCallable
"""A method of a peer."""


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What the peers said, and the ids of those who did not answer in time."""

    given: tuple[T, ...]
    unanswered: tuple[str, ...]


class Peers:
    """Follows discovery, and keeps a channel to every orchestrator that it names but this one."""

    def __init__(
        self, own_id: str, *, source: Source, open_channel: Callable[[str], aio.Channel]
    ) -> None:
        self._own_id = own_id
        self._source = source
        self._open_channel = open_channel
        self._channels: dict[Endpoint, aio.Channel] = {}  # As many as discovery names now.

    async def run(self) -> None:
        """Follow discovery until cancelled; then no channel is left."""
        try:
            async for endpoints in self._source.watch(GROUP):
                await self._reconcile({one for one in endpoints if one.id != self._own_id})
        finally:
            await self._reconcile(set())

    async def ask(self, method: Callable[[Stub], Method[Q, T]], question: Q) -> Answers[T]:
        """Put a question to a method of every peer at once; each has `ASK_S` to answer."""
        channels = dict(self._channels)
        answers = await asyncio.gather(
            *(
                self._one(endpoint, method(Stub(channel))(question, timeout=ASK_S))
                for endpoint, channel in channels.items()
            )
        )
        return Answers(
            given=tuple(answer for _, answer in answers if answer is not None),
            unanswered=tuple(sorted(name for name, answer in answers if answer is None)),
        )

    @staticmethod
    async def _one(endpoint: Endpoint, answer: Awaitable[T]) -> tuple[str, T | None]:
        try:
            return endpoint.id, await answer
        except aio.AioRpcError as error:
            _log.info(
                "peer_did_not_answer", extra={"peer_id": endpoint.id, "reason": error.code().name}
            )
            return endpoint.id, None

    async def _reconcile(self, named: set[Endpoint]) -> None:
        for endpoint in named - self._channels.keys():
            self._channels[endpoint] = self._open_channel(endpoint.address)
        gone = [self._channels.pop(one) for one in list(self._channels) if one not in named]
        for channel in gone:
            await channel.close(ASK_S)
