"""The orchestrators, as the gateway calls them."""

from services.gateway.client.detachable import Detachable
from services.gateway.client.detachables import Detachables, Ended
from services.gateway.client.exchange import Exchange, ended_by
from services.gateway.client.media import Media, serve_payloads
from services.gateway.client.orchestrators import ClientPolicy, Orchestrators
from services.gateway.client.parties import State, Taken

__all__ = [
    "ClientPolicy",
    "Detachable",
    "Detachables",
    "Ended",
    "Exchange",
    "Media",
    "Orchestrators",
    "State",
    "Taken",
    "ended_by",
    "serve_payloads",
]
