"""Which services stand on which port."""

from typing import Final

from grpc import aio

from services.orchestrator.servicer.admin import AdminServicer
from services.orchestrator.servicer.clients import OrchestratorServicer
from services.orchestrator.servicer.gateways import GatewayLinkServicer
from services.orchestrator.servicer.peers import PeerServicer
from stagemesh.api.admin.v1 import admin_service_pb2, admin_service_pb2_grpc
from stagemesh.api.orchestrator.v1 import (
    gateway_link_service_pb2,
    gateway_link_service_pb2_grpc,
    orchestrator_service_pb2,
    orchestrator_service_pb2_grpc,
    peer_service_pb2,
    peer_service_pb2_grpc,
)
from stagemesh.api.stage.v1 import payload_service_pb2, payload_service_pb2_grpc
from stagemesh.payload import PayloadServicer

__all__ = [
    "ADMIN_SERVICE",
    "CLIENT_SERVICE",
    "LINK_SERVICES",
    "register_admin",
    "register_clients",
    "register_links",
]

CLIENT_SERVICE: Final = orchestrator_service_pb2.DESCRIPTOR.services_by_name[
    "OrchestratorService"
].full_name
"""The client port's service; as a name of health, whether this orchestrator can serve any model."""

ADMIN_SERVICE: Final = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name

LINK_SERVICES: Final = (
    gateway_link_service_pb2.DESCRIPTOR.services_by_name["GatewayLinkService"].full_name,
    peer_service_pb2.DESCRIPTOR.services_by_name["PeerService"].full_name,
    payload_service_pb2.DESCRIPTOR.services_by_name["PayloadService"].full_name,
)


def register_clients(servicer: OrchestratorServicer, server: aio.Server) -> None:
    """Put the service for gRPC clients on a server."""
    orchestrator_service_pb2_grpc.add_OrchestratorServiceServicer_to_server(servicer, server)


def register_links(
    links: GatewayLinkServicer,
    peers: PeerServicer,
    payloads: PayloadServicer,
    server: aio.Server,
) -> None:
    """Put the services for gateways, other orchestrators and readers of payloads on a server."""
    gateway_link_service_pb2_grpc.add_GatewayLinkServiceServicer_to_server(links, server)
    peer_service_pb2_grpc.add_PeerServiceServicer_to_server(peers, server)
    payload_service_pb2_grpc.add_PayloadServiceServicer_to_server(payloads, server)


def register_admin(servicer: AdminServicer, server: aio.Server) -> None:
    """Put the service for operators on a server."""
    admin_service_pb2_grpc.add_AdminServiceServicer_to_server(servicer, server)
