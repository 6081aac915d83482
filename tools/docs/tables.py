"""Tables in Markdown."""

from collections.abc import Iterable, Sequence

__all__ = ["code", "table"]


def code(word: object) -> str:
    """Set a word in code; nothing stays nothing."""
    return f"`{word}`" if str(word) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") or "—" for cell in line) + " |\n"
        for line in lines
    )
