"""What every channel and every server of the mesh agree on."""

from typing import Final

__all__ = ["CHANNEL_OPTIONS", "MESSAGE_BYTES_MAX", "SERVER_OPTIONS"]

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024 + 64 * 1024
"""Four MiB of content, and a margin for the fields around it."""

_KEEPALIVE_TIME_MS: Final = 20_000
_KEEPALIVE_TIMEOUT_MS: Final = 10_000
_PENDING_CALLS_MAX: Final = 16_384

_COMMON: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Links have a faster heartbeat of their own; this one finds dead peers of plain calls.
    ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    # A stream may be silent in gRPC's eyes for as long as a model thinks.
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *_COMMON,
    # One connection per channel: two links to one peer must not share their fate by accident.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # No call is tried twice but by the orchestrator; nothing of the mesh goes through a proxy that
    # an environment variable names; nobody looks up service configurations in DNS.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
)

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *_COMMON,
    # Two servers on one port would each get half of the calls; the second must fail to bind.
    ("grpc.so_reuseport", 0),
    # Calls that arrived and were not taken yet. gRPC's own limit of 1,000 cancels calls of a burst.
    ("grpc.server.max_pending_requests", _PENDING_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING_CALLS_MAX),
    ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
)
