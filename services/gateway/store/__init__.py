"""What gateways keep together of requests that may outlive one of them."""

from services.gateway.store.busy import StoreBusy, insist
from services.gateway.store.rows import RequestRow, RequestStore, taken_by
from services.gateway.store.sqlite import SqliteStore

__all__ = ["RequestRow", "RequestStore", "SqliteStore", "StoreBusy", "insist", "taken_by"]
