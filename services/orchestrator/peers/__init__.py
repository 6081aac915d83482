"""The other orchestrators: who they are, and what they answer."""

from services.orchestrator.peers.asking import Answers, Method, Peers

__all__ = ["Answers", "Method", "Peers"]
