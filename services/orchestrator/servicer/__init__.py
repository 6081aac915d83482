"""Inbound gRPC: clients, gateways and operators."""

from services.orchestrator.servicer.admin import AdminServicer
from services.orchestrator.servicer.calls import Calls
from services.orchestrator.servicer.clients import OrchestratorServicer
from services.orchestrator.servicer.converse import Conversations
from services.orchestrator.servicer.draining import Draining
from services.orchestrator.servicer.gateways import GatewayLinks, GatewayLinkServicer
from services.orchestrator.servicer.generate import Generation
from services.orchestrator.servicer.operations import Operations
from services.orchestrator.servicer.peers import PeerServicer
from services.orchestrator.servicer.ports import (
    ADMIN_SERVICE,
    CLIENT_SERVICE,
    LINK_SERVICES,
    register_admin,
    register_clients,
    register_links,
)
from services.orchestrator.servicer.presence import Presence
from services.orchestrator.servicer.requests import Requests
from services.orchestrator.servicer.watchers import Watchers

__all__ = [
    "ADMIN_SERVICE",
    "CLIENT_SERVICE",
    "LINK_SERVICES",
    "AdminServicer",
    "Calls",
    "Conversations",
    "Draining",
    "GatewayLinkServicer",
    "GatewayLinks",
    "Generation",
    "Operations",
    "OrchestratorServicer",
    "PeerServicer",
    "Presence",
    "Requests",
    "Watchers",
    "register_admin",
    "register_clients",
    "register_links",
]
