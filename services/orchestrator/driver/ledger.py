"""The ledger: what operators hear of requests. One log line for each end, and the metrics."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from services.orchestrator.core.effects import (
    DropRequest,
    Effect,
    EndRequest,
    HandBackRequest,
)
from services.orchestrator.core.events import Event, Opened, RowsArrived
from stagemesh.outcome import Outcome, Terminal, error_for
from stagemesh.telemetry import Metrics

__all__ = ["Ledger"]

_STEP_BUCKETS_S: Final = (5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 2.5e-2, 0.1)
_ROW_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_UNKNOWN_MODEL: Final = "unknown"

_log = logging.getLogger(__name__)


class _OpenRequest(msgspec.Struct, frozen=True):
    request_id: str
    model: str
    opened_s: float


class Ledger:
    """Watches the steps of the core. It holds nothing of a request but its names."""

    def __init__(
        self,
        metrics: Metrics,
        models: Iterable[str],
        ended: Callable[[str], None] = lambda request_id: None,
    ) -> None:
        """Take where to count, the labels that there are, and who wants to hear of each end."""
        self._models = frozenset(models)
        self._ended = ended
        # By client link and slot; a request leaves with its end, which the core tells of each.
        self._requests: dict[tuple[int, int], _OpenRequest] = {}
        self._metrics = metrics
        self._open = metrics.gauge(
            "orchestrator_requests_open", "Requests without a terminal.", ("model",)
        )
        self._finished = metrics.counter(
            "orchestrator_requests_finished",
            "Requests that ended, by how they did.",
            ("model", "outcome", "code"),
        )
        self._seconds = metrics.histogram(
            "orchestrator_request_seconds", "From open to terminal.", ("model",)
        )
        self._first_output = metrics.histogram(
            "orchestrator_first_output_seconds", "From open to the first output.", ("model",)
        )
        self._outputs = metrics.counter(
            "orchestrator_outputs", "Outputs that workers sent."
        ).labels()
        self._rows = metrics.histogram(
            "orchestrator_message_rows", "Outputs in one message of a worker.", buckets=_ROW_BUCKETS
        ).labels()
        self._steps = metrics.histogram(
            "orchestrator_step_seconds",
            "What the core takes for one event.",
            buckets=_STEP_BUCKETS_S,
        ).labels()

    def watch_attempts(self, inflight: Mapping[str, Callable[[], float]]) -> None:
        """Show how many attempts are in flight in each pool, asked for whenever somebody reads."""
        family = self._metrics.gauge(
            "orchestrator_attempts_inflight", "Attempts without an end.", ("pool",)
        )
        for pool, count in inflight.items():
            family.labels(pool).set_function(count)

    def watch_oddities(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Show what the core counts of things that should be rare, whenever somebody reads."""
        family = self._metrics.gauge(
            "orchestrator_oddities",
            "Rare things that the core has seen since its start.",
            ("kind",),
        )
        for kind in counts():
            family.labels(kind).set_function(partial(_count, counts, kind))

    def watch_kept(self, footprint: Callable[[], Mapping[str, int]]) -> None:
        """Show how much the core keeps of requests, whenever somebody reads."""
        family = self._metrics.gauge(
            "orchestrator_kept", "What the core keeps of requests, by kind.", ("kind",)
        )
        for kind in footprint():
            family.labels(kind).set_function(partial(_count, footprint, kind))

    def stepped(self, event: Event, effects: list[Effect], now_s: float, took_s: float) -> None:
        """Count a step, and write down the ends that it brought."""
        self._steps.observe(took_s)
        if isinstance(event, RowsArrived):
            self._outputs.inc(len(event.rows))
            self._rows.observe(len(event.rows))
        elif isinstance(event, Opened):
            self._begin(event, now_s)
        for effect in effects:
            if isinstance(effect, EndRequest | DropRequest | HandBackRequest):
                self._ended(effect.request_id)
                request = self._requests.pop((effect.link, effect.slot), None)
                if request is not None:
                    self._end(request, _terminal_of(effect), now_s)

    def _begin(self, event: Opened, now_s: float) -> None:
        if (event.link, event.slot) in self._requests:
            return  # The slot is taken, so the core takes no notice of this one.
        model = event.request.model if event.request.model in self._models else _UNKNOWN_MODEL
        self._requests[event.link, event.slot] = _OpenRequest(event.request_id, model, now_s)
        self._open.labels(model).inc()

    def _end(self, request: _OpenRequest, terminal: Terminal, now_s: float) -> None:
        total_s = now_s - request.opened_s
        error, timings = terminal.error, terminal.timings
        code = error.code.name if error else ""
        self._open.labels(request.model).dec()
        self._finished.labels(request.model, terminal.outcome.name, code).inc()
        self._seconds.labels(request.model).observe(total_s)
        if timings.first_output_s:
            self._first_output.labels(request.model).observe(timings.first_output_s)
        _log.info(
            "request_ended",
            extra={
                "request_id": request.request_id,
                "model": request.model,
                "outcome": terminal.outcome.name,
                "code": code,
                "reason": error.reason if error else "",
                "stage": error.stage if error else "",
                "queue_s": round(timings.queue_s, 6),
                "first_output_s": round(timings.first_output_s, 6),
                "total_s": round(total_s, 6),
            },
        )


def _terminal_of(effect: EndRequest | DropRequest | HandBackRequest) -> Terminal:
    """Give how a request ended here; one that was handed back goes on elsewhere."""
    if isinstance(effect, EndRequest | DropRequest):
        return effect.terminal
    return Terminal(
        outcome=Outcome.CANCELLED, error=error_for("link_lost", "The request was handed back.")
    )


def _count(counts: Callable[[], Mapping[str, int]], kind: str) -> float:
    return counts()[kind]
