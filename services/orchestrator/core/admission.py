"""Admission: how many requests of a pipeline run, and how many wait for that."""

import math
from collections import OrderedDict

from services.orchestrator.core.request import OpenRequest
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for
from stagemesh.pipeline import Pipeline

__all__ = ["Admission"]


class Admission:
    """One pipeline's limits; the mesh file's totals are shared by `orchestrators`."""

    def __init__(self, pipeline: Pipeline, *, orchestrators: int, retry_after_s: float) -> None:
        limits = pipeline.limits
        self._name = pipeline.name
        self._running_max = math.ceil(limits.running_max / orchestrators)
        self._waiting_max = math.ceil(limits.waiting_max / orchestrators)
        self._bytes_max = math.ceil(limits.input_bytes_max / orchestrators)
        self._retry_after_s = retry_after_s
        self._waiting: OrderedDict[int, OpenRequest] = OrderedDict()
        self.running = 0
        self.input_bytes = 0

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def check(self, input_bytes: int) -> None:
        """See whether a request with so many bytes of input finds room.

        Raises:
            MeshError: If it does not; then nothing is parked.
        """
        if input_bytes > self._bytes_max:
            raise MeshError(
                error_for("body_too_large", f"The input may have at most {self._bytes_max} bytes.")
            )
        no_place = self.running >= self._running_max and self.waiting >= self._waiting_max
        if no_place or self.input_bytes + input_bytes > self._bytes_max:
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

    def next_admitted(self) -> OpenRequest | None:
        """Take the next request that may run now, oldest first."""
        if not self._waiting or self.running >= self._running_max:
            return None
        self.running += 1
        return self._waiting.popitem(last=False)[1]

    def leave(self, request: OpenRequest) -> None:
        """Give up the place of a request that is done, wherever it was."""
        self.input_bytes -= request.input_bytes
        if self._waiting.pop(request.number, None) is None:
            self.running -= 1

    def all_waiting(self) -> list[OpenRequest]:
        """Give the requests that wait, oldest first."""
        return list(self._waiting.values())
