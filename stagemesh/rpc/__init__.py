"""gRPC under one policy: channels, servers, TLS, and errors as statuses."""

from stagemesh.rpc.channel import open_channel
from stagemesh.rpc.policy import MESSAGE_BYTES_MAX
from stagemesh.rpc.server import RunningServer, start_server
from stagemesh.rpc.status import ERROR_TRAILER, abort, error_of
from stagemesh.rpc.tls import Tls

__all__ = [
    "ERROR_TRAILER",
    "MESSAGE_BYTES_MAX",
    "RunningServer",
    "Tls",
    "abort",
    "error_of",
    "open_channel",
    "start_server",
]
