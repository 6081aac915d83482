"""Reads a mesh file's text: everything that is wrong at once, or a mesh."""

from collections.abc import Iterable, Iterator
from typing import Any

from stagemesh.pipeline.build import build_mesh
from stagemesh.pipeline.checks import Fault, name_faults, pipeline_faults, pool_faults
from stagemesh.pipeline.document import Document, read_document
from stagemesh.pipeline.model import Mesh
from stagemesh.pipeline.problems import MeshFileError, Path, Problem, path_text
from stagemesh.pipeline.shape import misshapen

__all__ = ["parse_mesh"]


def parse_mesh(text: str, name: str = "mesh.yaml") -> Mesh:
    """Read and check a mesh file's text; `name` is what messages call the file.

    Raises:
        MeshFileError: With every problem that was found.
    """
    document, problems = read_document(text)
    if document.value is None:
        raise MeshFileError(
            name,
            problems or [Problem(1, "", "the file says nothing; it needs `pools` and `pipelines`")],
        )
    shape = misshapen(document)
    problems += [problem for found in shape.values() for problem in found]
    for path, what in _faults(document, shape):
        problems.append(Problem(document.line(path), path_text(path), what))
    if problems:
        raise MeshFileError(name, problems)
    return build_mesh(document.value)


def _faults(document: Document, shape: Iterable[Path]) -> Iterator[Fault]:
    """Apply the rules to those pools and pipelines whose own shape is right."""
    bad = {path[:2] for path in shape}
    top = document.value if isinstance(document.value, dict) else {}
    pools = _entries(top.get("pools"))
    # A pool with faults of its own still has its name, so that nobody is told it is missing.
    sound_pools = {key: {} if ("pools", key) in bad else pool for key, pool in pools.items()}
    pipelines = _entries(top.get("pipelines"))
    sound = {key: value for key, value in pipelines.items() if ("pipelines", key) not in bad}
    for key, pool in sound_pools.items():
        if pool:
            yield from pool_faults(key, pool)
    yield from name_faults(sound)
    for key, pipeline in sound.items():
        yield from pipeline_faults(key, pipeline, sound_pools)


def _entries(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
