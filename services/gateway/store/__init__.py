"""What gateways keep together of requests that may outlive one of them."""

from services.gateway.store.rows import RequestRow, RequestStore, given
from services.gateway.store.sqlite import SqliteStore

__all__ = ["RequestRow", "RequestStore", "SqliteStore", "given"]
