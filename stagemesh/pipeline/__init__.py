"""The mesh file: pools and pipelines, read and checked."""

from stagemesh.pipeline.model import Edge, EdgeMode, Limits, Mesh, Pipeline, Pool, Stage
from stagemesh.pipeline.parse import parse_mesh
from stagemesh.pipeline.problems import MeshFileError, Problem
from stagemesh.pipeline.schema import mesh_schema

__all__ = [
    "Edge",
    "EdgeMode",
    "Limits",
    "Mesh",
    "MeshFileError",
    "Pipeline",
    "Pool",
    "Problem",
    "Stage",
    "mesh_schema",
    "parse_mesh",
]
