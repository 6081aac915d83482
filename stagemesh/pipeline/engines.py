"""What a mesh file may assume of the engines that come with StageMesh.

An engine of someone else's may do anything, so the rules that stand on this table skip it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from stagemesh.pipeline.schema import MODALITIES

__all__ = ["BUILT_IN", "BuiltIn", "gives", "synthetic_gives"]


class BuiltIn(NamedTuple):
    """The modalities that an engine can give, and the bridge it has where a stage names none."""

    gives: frozenset[str]
    bridge: str


BUILT_IN: Final[Mapping[str, BuiltIn]] = {
    "ctranslate2": BuiltIn(frozenset({"text"}), "chat"),
    "diffusers": BuiltIn(frozenset({"audio", "image", "tensor", "video"}), "condition"),
    "piper": BuiltIn(frozenset({"audio"}), "clauses"),
    "synthetic": BuiltIn(frozenset({"audio", "image", "tensor", "text", "video"}), "script"),
    "transformers": BuiltIn(frozenset({"tensor", "text"}), "prompt"),
    "vllm": BuiltIn(frozenset({"tensor", "text"}), "chat"),
    "whisper": BuiltIn(frozenset({"text"}), "transcript"),
}


def synthetic_gives(options: Mapping[str, Any]) -> frozenset[str]:
    """Read what a synthetic pool is told to give: a list, or words with commas between."""
    value = options.get("gives", "text")
    words = value if isinstance(value, list) else str(value).split(",")
    return frozenset(str(word).strip() for word in words)


def gives(engine: str, options: Mapping[str, Any]) -> frozenset[str] | None:
    """Give the modalities that a pool's engine can produce; None if nobody can tell."""
    if engine == "synthetic":
        names = synthetic_gives(options)
        return names if names <= set(MODALITIES) else None
    known = BUILT_IN.get(engine)
    return known.gives if known else None
