"""The orchestrators, as the gateway calls them."""

from services.gateway.client.exchange import Exchange, State, Taken, ended_by
from services.gateway.client.media import Media, serve_payloads
from services.gateway.client.orchestrators import ClientPolicy, Orchestrators

__all__ = [
    "ClientPolicy",
    "Exchange",
    "Media",
    "Orchestrators",
    "State",
    "Taken",
    "ended_by",
    "serve_payloads",
]
