"""Feeds the dump of an orchestrator's core to a new core."""

from tools.replay.replaying import Replay, Verdict, replay

__all__ = ["Replay", "Verdict", "replay"]
