"""A checked mesh: pools, and pipelines as graphs of stages in topological order."""

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, Final, Literal

import msgspec

from stagemesh.media import Modality, Params

__all__ = [
    "JOIN_S",
    "Clamp",
    "Constraint",
    "Edge",
    "EdgeMode",
    "Fixed",
    "Limits",
    "Mesh",
    "Pipeline",
    "Pool",
    "ReplicaChoice",
    "Stage",
    "Tenant",
]


JOIN_S: Final = 30.0


class EdgeMode(IntEnum):
    """How an edge hands results on: the same numbers as in `link.proto`."""

    WHOLE = 1
    STREAM = 2
    SEGMENT = 3
    """One run for each finished segment of a streamed input."""


class ReplicaChoice(Enum):
    """How a pool chooses a replica for a request that has none there yet."""

    LEAST_LOADED = "least_loaded"
    PREFIX_AFFINITY = "prefix_affinity"
    """Where a conversation with the same beginning went, bounded by load."""
    ROUND_ROBIN = "round_robin"


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A set of interchangeable replicas that run one engine configuration."""

    name: str
    engine: str
    replicas: int = 1
    model: str = ""
    options: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}
    replica_choice: ReplicaChoice = ReplicaChoice.LEAST_LOADED
    companions: Literal["apart", "together"] = "together"


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a stage: a lane of another stage, and how it is handed on."""

    stage: int
    modality: Modality
    mode: EdgeMode


class Fixed(msgspec.Struct, frozen=True, tag=True):
    """A value that holds whatever anybody wishes."""

    value: Any


class Clamp(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Bounds that a number is moved into; None is no bound. The stage has a default for it."""

    least: float | None = None
    most: float | None = None


Constraint = Fixed | Clamp


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a pipeline.

    `index` is its place in topological order and in lane numbers. `when` names the input modality
    without which the stage is left out. `choices` marks where a request for `n` choices fans out:
    this stage and everything downstream of it run once for each choice. `companions` are extra runs
    of the stage for the same request, whose results its consumers get together with its own.
    `comprehends` marks the stages that get what a client says of tokens without naming a stage, and
    `constraints` are by field, as in `sampling.temperature`.
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
    constraints: Mapping[str, Constraint] = {}
    comprehends: bool = False
    when: Modality | None = None
    companions: tuple[str, ...] = ()
    apart: bool = False
    """Its pool lets companions run on other replicas than the choice that they belong to."""
    join_s: float = JOIN_S
    """How long companions may go on once the choice that they belong to has ended."""
    choices: bool = False
    streamed: EdgeMode | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Admission limits, as the whole mesh's totals; a tenant's own are the pipeline's if None."""

    running_max: int = 256
    waiting_max: int = 1024
    input_bytes_max: int = 256 * 1024 * 1024
    tenant_running_max: int | None = None
    tenant_waiting_max: int | None = None
    tenant_input_bytes_max: int | None = None


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

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every name under which clients may ask for it."""
        return self.name, *self.aliases


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who shares the mesh with others, and how large a share is due where all wait."""

    weight: float = 1.0


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one mesh file describes; a tenant that it does not name has weight 1."""

    pools: Mapping[str, Pool]
    pipelines: Mapping[str, Pipeline]
    tenants: Mapping[str, Tenant] = {}
