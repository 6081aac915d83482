"""Thin clients of what a running mesh offers to operators and to those who converse with it."""

from stagemesh.client.admin import ListedOrchestrator, ListedReplica, ReplicaList, list_replicas
from stagemesh.client.converse import ChangedPrompt, Conversation, ConversedOutput, converse
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
    "ChangedPrompt",
    "Conversation",
    "ConversedOutput",
    "Happening",
    "ListedOrchestrator",
    "ListedReplica",
    "ReplicaList",
    "ReplicaResult",
    "RequestStory",
    "StageTimes",
    "converse",
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
