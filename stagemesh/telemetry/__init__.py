"""Logs and metrics of one process."""

from stagemesh.telemetry.logs import configure_logs, current_request_id, request_logs
from stagemesh.telemetry.metrics import DURATION_BUCKETS_S, SERIES_MAX, Family, Metrics, metrics
from stagemesh.telemetry.server import MetricsServer, start_metrics

__all__ = [
    "DURATION_BUCKETS_S",
    "SERIES_MAX",
    "Family",
    "Metrics",
    "MetricsServer",
    "configure_logs",
    "current_request_id",
    "metrics",
    "request_logs",
    "start_metrics",
]
