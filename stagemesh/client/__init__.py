"""Thin clients of what a running mesh offers to operators."""

from stagemesh.client.admin import ListedOrchestrator, ListedReplica, ReplicaList, list_replicas
from stagemesh.client.explaining import Happening, RequestStory, StageTimes, explain_request
from stagemesh.client.probes import http_status, watch_health

__all__ = [
    "Happening",
    "ListedOrchestrator",
    "ListedReplica",
    "ReplicaList",
    "RequestStory",
    "StageTimes",
    "explain_request",
    "http_status",
    "list_replicas",
    "watch_health",
]
