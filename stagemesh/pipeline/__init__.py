"""The mesh file: pools and pipelines, read and checked."""

from stagemesh.pipeline.model import (
    Clamp,
    Constraint,
    Edge,
    EdgeMode,
    Fixed,
    Limits,
    Mesh,
    Pipeline,
    Pool,
    ReplicaChoice,
    Stage,
    Tenant,
)
from stagemesh.pipeline.parse import parse_mesh
from stagemesh.pipeline.problems import MeshFileError, Problem
from stagemesh.pipeline.schema import mesh_schema
from stagemesh.pipeline.wishes import effective_params, wished_fields

__all__ = [
    "Clamp",
    "Constraint",
    "Edge",
    "EdgeMode",
    "Fixed",
    "Limits",
    "Mesh",
    "MeshFileError",
    "Pipeline",
    "Pool",
    "Problem",
    "ReplicaChoice",
    "Stage",
    "Tenant",
    "effective_params",
    "mesh_schema",
    "parse_mesh",
    "wished_fields",
]
