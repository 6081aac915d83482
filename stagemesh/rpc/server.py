"""Starts servers, all under one policy, with health and reflection, and stops them gracefully."""

from collections.abc import Callable, Sequence

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection as reflection_service

from stagemesh.rpc.guard import Guard
from stagemesh.rpc.health import Health
from stagemesh.rpc.policy import SERVER_OPTIONS
from stagemesh.rpc.tls import Tls, server_credentials
from stagemesh.settings import refuse_exposed

__all__ = ["RunningServer", "start_server"]

_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class RunningServer:
    """A server that takes calls, until `stop`.

    Health `""` is liveness and true from the start. Each name of `services` is a readiness, false
    until `set_serving` says otherwise.
    """

    def __init__(self, server: aio.Server, health: Health, host: str, port: int) -> None:
        # gRPC closes the port of a server object that nobody refers to.
        self._server = server
        self._health = health
        self.port = port
        self.address = f"{host}:{port}"

    def set_serving(self, name: str, serving: bool) -> None:
        """Say whether `name`, a service or a published model, is ready; watchers hear of it."""
        self._health.set(name, serving)

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, give running ones `grace_s`, then cancel them. Safe to call twice."""
        self._health.close()
        await self._server.stop(grace_s)


async def start_server(
    address: str,
    *,
    register: Callable[[aio.Server], None],
    services: Sequence[str],
    reflection: bool = False,
    tls: Tls | None = None,
    insecure: bool = False,
) -> RunningServer:
    """Start a server on `HOST:PORT`; port 0 takes a free one. `register` adds the servicers.

    A `MeshError` that a servicer raises becomes its status, any other exception `INTERNAL`.

    Raises:
        BadSettings: If the address is not loopback, there is no TLS and `insecure` is false.
        OSError: If the address cannot be bound, or a TLS file cannot be read.
    """
    refuse_exposed(address, secure=tls is not None, insecure=insecure)
    server = aio.server(options=SERVER_OPTIONS, interceptors=(Guard(),))
    register(server)
    health = Health()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    for name in services:
        health.set(name, False)
    if reflection:
        names = (*services, _HEALTH, reflection_service.SERVICE_NAME)
        reflection_service.enable_server_reflection(names, server)
    port = _bind(server, address, tls)
    await server.start()
    return RunningServer(server, health, address.rpartition(":")[0], port)


def _bind(server: aio.Server, address: str, tls: Tls | None) -> int:
    credentials = server_credentials(tls) if tls else None
    try:
        if credentials:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
