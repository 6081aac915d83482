"""Thin clients of what a running mesh offers to operators and to those who converse with it."""

from stagemesh.client.admin import ListedOrchestrator, ListedReplica, ReplicaList, list_replicas
from stagemesh.client.converse import ChangedPrompt, Conversation, ConversedOutput, converse
from stagemesh.client.probes import http_status, watch_health

__all__ = [
    "ChangedPrompt",
    "Conversation",
    "ConversedOutput",
    "ListedOrchestrator",
    "ListedReplica",
    "ReplicaList",
    "converse",
    "http_status",
    "list_replicas",
    "watch_health",
]
