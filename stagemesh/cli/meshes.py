"""Finds mesh files, by path or by the name of one that is shipped."""

from pathlib import Path
from typing import NamedTuple

import stagemesh
from stagemesh.pipeline import Mesh, MeshFileError, Problem, parse_mesh

__all__ = ["MeshFile", "NoMeshFile", "read_mesh", "shipped_folder"]


class NoMeshFile(OSError):
    """There is no such mesh file, or it cannot be read; the message says what there is."""


class MeshFile(NamedTuple):
    """A mesh file that is right: where it is, what it says, and what that means."""

    path: str
    text: str
    mesh: Mesh


def shipped_folder() -> Path:
    """Give the folder of the mesh files that come with StageMesh."""
    package = Path(stagemesh.__file__).parent
    installed = package / "pipelines"
    # In a checkout they are not inside the package, but beside it.
    return installed if installed.is_dir() else package.parent / "pipelines"


def read_mesh(name: str) -> MeshFile:
    """Read and check a mesh file, given by its path or by the name of one that is shipped.

    Raises:
        NoMeshFile: If it cannot be read.
        MeshFileError: If something is wrong with it.
    """
    path = Path(name)
    if not path.exists() and path.name == name and not path.suffix:
        path = shipped_folder() / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise MeshFileError(name, [Problem(line, "", "not UTF-8 text")]) from error
    except OSError as error:
        shipped = ", ".join(sorted(file.stem for file in shipped_folder().glob("*.yaml")))
        what = f"{name}: {error.strerror}; the shipped meshes are {shipped}"
        raise NoMeshFile(what) from error
    return MeshFile(str(path), text, parse_mesh(text, str(path)))
