"""The links to stage workers: who is dialled, and what is said."""

from services.orchestrator.workers.links import ReplicaLinks
from services.orchestrator.workers.pools import Pools

__all__ = ["Pools", "ReplicaLinks"]
