"""The other orchestrators: who they are, and what they answer."""

from services.orchestrator.peers.asking import ASK_S, Answers, Peers

__all__ = ["ASK_S", "Answers", "Peers"]
