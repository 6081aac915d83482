"""Thin clients of what a running mesh offers to operators."""

from stagemesh.client.admin import ListedOrchestrator, ListedReplica, ReplicaList, list_replicas
from stagemesh.client.probes import http_status, watch_health

__all__ = [
    "ListedOrchestrator",
    "ListedReplica",
    "ReplicaList",
    "http_status",
    "list_replicas",
    "watch_health",
]
