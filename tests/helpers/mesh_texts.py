"""Mesh files as texts, for tests that break them in one place."""

from textwrap import dedent

from stagemesh.pipeline import MeshFileError, parse_mesh

__all__ = ["POOLS", "mesh_text", "problems_of"]

POOLS = """\
pools:
  words: {engine: synthetic}
  sound: {engine: synthetic, options: {gives: audio}}
  numbers: {engine: synthetic, options: {gives: tensor}}
  pictures: {engine: synthetic, options: {gives: image}}
  anything: {engine: theirs}
"""


def mesh_text(pipelines: str) -> str:
    """Make a mesh file of the pools above (lines 1 to 6) and the given pipelines (from line 8)."""
    indented = "\n".join(f"  {line}" if line else "" for line in dedent(pipelines).splitlines())
    return f"{POOLS}pipelines:\n{indented}\n"


def problems_of(text: str) -> list[str]:
    """Give what is wrong with a mesh file, as people see it."""
    try:
        parse_mesh(text)
    except MeshFileError as error:
        return [str(problem) for problem in error.problems]
    return []
