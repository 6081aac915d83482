"""What is wrong with a mesh file, and where."""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["MeshFileError", "Path", "Problem", "path_text"]

Path = tuple[str | int, ...]


class Problem(NamedTuple):
    """One mistake: its line (from 1), the path of the value, and what is wrong with it."""

    line: int
    path: str
    text: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"line {self.line}: {where}{self.text}"


class MeshFileError(ValueError):
    """A mesh file cannot be used; `problems` has every mistake that was found, by line."""

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.name = name
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(f"{name}: {problem}" for problem in self.problems))


def path_text(path: Path) -> str:
    """Write a path as people do: `pipelines.talk.stages.talker.inputs[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
