"""What the gateway counts."""

from typing import Final

from stagemesh.telemetry import Metrics

__all__ = ["GatewayMetrics"]

_ROWS_BUCKETS: Final = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
_STATUSES: Final = 24


class GatewayMetrics:
    """The series of one gateway; routes are templates, never paths."""

    def __init__(self, registry: Metrics) -> None:
        self.registry = registry
        self.requests = registry.counter(
            "gateway_http_requests", "HTTP requests by route and status.", ("route", "status"),
            series_max=_STATUSES * 16,
        )  # fmt: skip
        self.open_requests = registry.gauge(
            "gateway_open_requests", "HTTP requests being answered."
        ).labels()
        self.open_streams = registry.gauge(
            "gateway_open_streams", "Answers being streamed."
        ).labels()
        self.first_byte_s = registry.histogram(
            "gateway_first_byte_seconds",
            "From the request's head to the answer's first byte.",
            ("route",),
        )
        self.rows_per_write = registry.histogram(
            "gateway_rows_per_write", "Outputs in one write, as the mean of one stream.",
            buckets=_ROWS_BUCKETS,
        ).labels()  # fmt: skip
        self.rows = registry.counter("gateway_stream_rows", "Outputs that were streamed.").labels()
        self.writes = registry.counter("gateway_stream_writes", "Writes of streams.").labels()
        self.dropped = registry.counter(
            "gateway_dropped_rows", "Outputs that had been delivered before."
        ).labels()
        self.losses = registry.counter(
            "gateway_lost_owners", "Orchestrators that open requests lost, by how.", ("kind",)
        )
