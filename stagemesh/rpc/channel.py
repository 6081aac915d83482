"""Opens channels, all under one policy."""

from grpc import aio

from stagemesh.rpc.policy import CHANNEL_OPTIONS
from stagemesh.rpc.tls import Tls, channel_credentials
from stagemesh.settings import refuse_exposed

__all__ = ["open_channel"]


def open_channel(address: str, *, tls: Tls | None = None, insecure: bool = False) -> aio.Channel:
    """Open a channel to `HOST:PORT`, on a connection of its own; the caller closes it.

    Raises:
        BadSettings: If the address is not loopback, there is no TLS and `insecure` is false.
        OSError: If a TLS file cannot be read.
    """
    refuse_exposed(address, secure=tls is not None, insecure=insecure)
    if tls is None:
        return aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    names = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()
    return aio.secure_channel(address, channel_credentials(tls), options=(*CHANNEL_OPTIONS, *names))
