"""Admission: how many requests of a pipeline run, and how many wait for that.

A conversation, whose client gives its input piece by piece, has a place as long as it is open. It
counts as running only while there is something to do for it, and asks again for each append.
"""

import math
from collections import OrderedDict
from typing import Final

from services.orchestrator.core.request import OpenRequest
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for
from stagemesh.pipeline import Pipeline

__all__ = ["Admission"]

_AGAIN: Final = 2
"""How many times the limits hold for requests that another owner had."""


class Admission:
    """One pipeline's limits; the mesh file's totals are shared by `orchestrators`.

    Requests that another owner had go before new ones, and up to twice as far.
    """

    def __init__(self, pipeline: Pipeline, *, orchestrators: int, retry_after_s: float) -> None:
        limits = pipeline.limits
        self._name = pipeline.name
        self._running_max = math.ceil(limits.running_max / orchestrators)
        self._waiting_max = math.ceil(limits.waiting_max / orchestrators)
        self._bytes_max = math.ceil(limits.input_bytes_max / orchestrators)
        self._retry_after_s = retry_after_s
        self._waiting: OrderedDict[int, OpenRequest] = OrderedDict()
        self._running: set[int] = set()
        # Conversations: who waits for its client, and who has something to do again.
        self._idle: set[int] = set()
        self._turns: OrderedDict[int, OpenRequest] = OrderedDict()
        self.input_bytes = 0

    @property
    def running(self) -> int:
        """How many requests run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many requests wait to run, those that have run before included."""
        return len(self._waiting) + len(self._turns)

    @property
    def idle(self) -> int:
        """How many conversations have a place, and wait for their client."""
        return len(self._idle)

    def check(self, input_bytes: int, *, again: bool = False) -> None:
        """See whether a request with so many bytes of input finds room.

        Raises:
            MeshError: If it does not; then nothing is parked.
        """
        if input_bytes > self._bytes_max:
            raise MeshError(
                error_for("body_too_large", f"The input may have at most {self._bytes_max} bytes.")
            )
        times = _AGAIN if again else 1
        running_max, waiting_max = times * self._running_max, times * self._waiting_max
        full = self.running >= running_max and self.waiting >= waiting_max
        no_place = full or self.idle >= running_max + waiting_max
        if no_place or self.input_bytes + input_bytes > times * self._bytes_max:
            raise MeshError(
                error_for(
                    "queue_full",
                    f"As many requests for {self._name} wait as may wait.",
                    retry_after_s=self._retry_after_s,
                )
            )

    def enter(self, request: OpenRequest) -> None:
        """Take a request in that was checked; it waits until `next_admitted` gives it."""
        self.input_bytes += request.input_bytes
        self._waiting[request.number] = request
        if request.epoch > 1:
            self._waiting.move_to_end(request.number, last=False)

    def next_admitted(self) -> OpenRequest | None:
        """Take the next request that may run now, oldest first; those that ran before go first."""
        if self._turns and self.running < self._running_max:
            number, request = self._turns.popitem(last=False)
            self._running.add(number)
            return request
        if not self._waiting:
            return None
        number, request = next(iter(self._waiting.items()))
        times = _AGAIN if request.epoch > 1 else 1
        if self.running >= times * self._running_max:
            return None
        del self._waiting[number]
        self._running.add(number)
        return request

    def set_apart(self, request: OpenRequest) -> None:
        """Let a request wait no longer that will not run."""
        self._waiting.pop(request.number, None)
        self._turns.pop(request.number, None)

    def park(self, request: OpenRequest) -> None:
        """Take the running slot of a conversation that waits for its client; it keeps its place."""
        self._running.discard(request.number)
        self._idle.add(request.number)

    def rejoin(self, request: OpenRequest) -> None:
        """Let a conversation wait for a running slot again; `next_admitted` gives it."""
        self._idle.discard(request.number)
        self._turns[request.number] = request

    def resize(self, request: OpenRequest, input_bytes: int) -> bool:
        """Note how much input of a request is kept now; False if all have more than they may."""
        self.input_bytes += input_bytes - request.input_bytes
        request.input_bytes = input_bytes
        return self.input_bytes <= self._bytes_max

    def leave(self, request: OpenRequest) -> None:
        """Give up the place of a request that is done, wherever it was."""
        self.input_bytes -= request.input_bytes
        self._waiting.pop(request.number, None)
        self._turns.pop(request.number, None)
        self._running.discard(request.number)
        self._idle.discard(request.number)

    def all_waiting(self) -> list[OpenRequest]:
        """Give the requests that wait, oldest first."""
        return list(self._waiting.values())
