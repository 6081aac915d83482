"""The orchestrator's core: it decides, and never awaits."""
