"""Shows people how a mesh comes up: a live table on a terminal, plain lines elsewhere.

Everything goes to stderr, so that stdout holds the word `ready` and nothing else.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

__all__ = ["LiveProgress", "PlainProgress", "Progress", "Row", "make_progress"]


class Row(NamedTuple):
    """What is shown of one process."""

    id: str
    state: str
    detail: str


class Progress(Protocol):
    """Where the launcher tells what happens."""

    def show(self, rows: Sequence[Row]) -> None:
        """Show where every process stands; only until `done`."""
        ...

    def say(self, text: str) -> None:
        """Tell of one event."""
        ...

    def done(self) -> None:
        """Stop showing; events may still follow."""
        ...


class PlainProgress:
    """One line for each change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, Row] = {}  # One entry for each process of the mesh.

    def show(self, rows: Sequence[Row]) -> None:
        """Print the rows that have changed."""
        for row in rows:
            if self._shown.get(row.id) != row:
                self._shown[row.id] = row
                self.say(f"{row.id}: {row.state}{f': {row.detail}' if row.detail else ''}")

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def done(self) -> None:
        """Nothing is left to do."""


class LiveProgress:
    """A table that is drawn over, until everything is ready."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, rows: Sequence[Row]) -> None:
        """Draw the table anew."""
        table = Table(box=None, pad_edge=False)
        for title in ("process", "state", "detail"):
            table.add_column(title)
        for row in rows:
            table.add_row(escape(row.id), row.state, escape(row.detail))
        self._live.update(table, refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def done(self) -> None:
        """Take the table away and give the terminal back."""
        self._live.stop()


def make_progress(console: Console) -> Progress:
    """Choose what suits the console."""
    return LiveProgress(console) if console.is_terminal else PlainProgress(console)
