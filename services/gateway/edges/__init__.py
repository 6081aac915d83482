"""The HTTP edge of the gateway."""

from services.gateway.edges.call import Backend
from services.gateway.edges.front import Front
from services.gateway.edges.metrics import GatewayMetrics
from services.gateway.edges.protocol import BoundedProtocol

__all__ = ["Backend", "BoundedProtocol", "Front", "GatewayMetrics"]
