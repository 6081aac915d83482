"""Thin clients of what a running mesh offers to operators."""

from stagemesh.client.admin import ListedOrchestrator, ListedReplica, ReplicaList, list_replicas
from stagemesh.client.explaining import Happening, RequestStory, StageTimes, explain_request
from stagemesh.client.operations import (
    ReplicaResult,
    drain,
    pause,
    resume,
    sleep,
    undrain,
    wake_up,
)
from stagemesh.client.probes import http_status, watch_health

__all__ = [
    "Happening",
    "ListedOrchestrator",
    "ListedReplica",
    "ReplicaList",
    "ReplicaResult",
    "RequestStory",
    "StageTimes",
    "drain",
    "explain_request",
    "http_status",
    "list_replicas",
    "pause",
    "resume",
    "sleep",
    "undrain",
    "wake_up",
    "watch_health",
]
