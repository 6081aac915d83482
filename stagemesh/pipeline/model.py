"""A checked mesh: pools, and pipelines as graphs of stages in topological order."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import msgspec

from stagemesh.media import Modality, Params

__all__ = ["Edge", "EdgeMode", "Limits", "Mesh", "Pipeline", "Pool", "Stage"]


class EdgeMode(IntEnum):
    """How an edge hands results on: the same numbers as in `link.proto`."""

    WHOLE = 1
    STREAM = 2
    SEGMENT = 3
    """One run for each finished segment of a streamed input."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A set of interchangeable replicas that run one engine configuration."""

    name: str
    engine: str
    replicas: int = 1
    model: str = ""
    options: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a stage: a lane of another stage, and how it is handed on."""

    stage: int
    modality: Modality
    mode: EdgeMode


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a pipeline.

    `index` is its place in topological order and in lane numbers. `when` names the input modality
    without which the stage is left out. `choices` marks where a request for `n` choices fans out:
    this stage and everything downstream of it run once for each choice. `companions` are extra runs
    of the stage for the same request, whose results its consumers get together with its own.
    `streamed` says how the stage reads what a client sends piece by piece; None if it does not.
    """

    index: int
    name: str
    pool: str
    reads_input: bool
    edges: tuple[Edge, ...] = ()
    bridge: str = ""
    bridge_options: Mapping[str, Any] = {}
    params: Params = Params()
    when: Modality | None = None
    companions: tuple[str, ...] = ()
    choices: bool = False
    streamed: EdgeMode | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Admission limits, as the whole mesh's totals."""

    running_max: int = 256
    waiting_max: int = 1024
    input_bytes_max: int = 256 * 1024 * 1024


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A checked graph of stages, published as a model name."""

    name: str
    revision: str
    stages: tuple[Stage, ...]
    outputs: Mapping[Modality, int]
    """Which stage gives the client each modality."""
    inputs: frozenset[Modality]
    """What a client may send."""
    deadline_s: float = 300.0
    limits: Limits = Limits()
    aliases: tuple[str, ...] = ()

    def consumers(self, stage: int) -> tuple[int, ...]:
        """Give the indices of the stages that read from `stage`."""
        return tuple(
            other.index for other in self.stages if any(edge.stage == stage for edge in other.edges)
        )


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one mesh file describes."""

    pools: Mapping[str, Pool]
    pipelines: Mapping[str, Pipeline]
