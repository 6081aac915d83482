"""The page of states: the tables of legal moves, drawn."""

from typing import Final

from services.orchestrator.core.moves import (
    ATTEMPT_MOVES,
    GROUP_MOVES,
    REQUEST_MOVES,
    AttemptState,
    Moves,
    RequestState,
    Standing,
)
from tools.docs.tables import code, table

__all__ = ["states_page"]

_HEAD: Final = """\
# States of requests, groups and attempts

Generated from `services/orchestrator/core/moves.py`; do not edit.
The core moves by these tables: a move that is not listed raises `IllegalMove`, is logged, and ends the process, since what the core believes would be wrong from then on.
"""  # noqa: E501 - one sentence a line.


def states_page() -> str:
    """Write the page."""
    return (
        _HEAD
        + _section("Requests", REQUEST_MOVES)
        + _section("Groups", GROUP_MOVES)
        + _section("Attempts", ATTEMPT_MOVES)
    )


def _section(title: str, moves: Moves[RequestState] | Moves[AttemptState] | Moves[Standing]) -> str:
    drawn = [f"  [*] --> {moves.start.name}\n"]
    drawn += [f"  {move.source.name} --> {move.to.name}\n" for move in moves.moves]
    sources = {move.source for move in moves.moves}
    ends = dict.fromkeys(move.to for move in moves.moves if move.to not in sources)
    drawn += [f"  {end.name} --> [*]\n" for end in ends]
    rows = [(code(move.source.name), code(move.to.name), move.why) for move in moves.moves]
    diagram = f"```mermaid\nstateDiagram-v2\n{''.join(drawn)}```\n"
    return f"\n## {title}\n\n{diagram}\n{table(('from', 'to', 'when'), rows)}"
