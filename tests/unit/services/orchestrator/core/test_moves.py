"""The tables of legal moves."""

from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.core.moves import (
    ATTEMPT_MOVES,
    GROUP_MOVES,
    REQUEST_MOVES,
    AttemptState,
    IllegalMove,
    Moves,
    RequestState,
    Standing,
)

DRAWN = Path(__file__).parents[5] / "docs/design/run-states.md"
TABLES: list[tuple[Moves[Any], Any]] = [
    (REQUEST_MOVES, RequestState),
    (ATTEMPT_MOVES, AttemptState),
    (GROUP_MOVES, Standing),
]


@pytest.mark.invariant("ORCH-INV-107")
@pytest.mark.parametrize(("moves", "states"), TABLES)
def test_every_move_that_is_not_listed_is_an_error(moves: Moves[Any], states: Any) -> None:
    listed = {(move.source, move.to) for move in moves.moves}
    for source in states:
        for to in states:
            if (source, to) in listed:
                assert moves.check(source, to) is to
            else:
                with pytest.raises(IllegalMove, match=f"from {source.name} to {to.name}"):
                    moves.check(source, to)


@pytest.mark.parametrize(("moves", "states"), TABLES)
def test_every_state_can_be_reached_and_left_for_an_end(moves: Moves[Any], states: Any) -> None:
    steps = {state: {move.to for move in moves.moves if move.source is state} for state in states}

    def reachable(state: Any) -> set[Any]:
        seen, ahead = {state}, [state]
        while ahead:
            new = steps[ahead.pop()] - seen
            seen |= new
            ahead += new
        return seen

    # What a group gave may have to be made again even when it is over.
    ends = {state for state in states if not steps[state]} or {Standing.OVER}
    assert reachable(moves.start) == set(states)
    assert all(reachable(state) & ends for state in states)


def test_done_is_final_and_so_is_every_end_of_an_attempt() -> None:
    assert RequestState.DONE not in {move.source for move in REQUEST_MOVES.moves}
    ends = {
        AttemptState.CANCELLED,
        AttemptState.FAILED,
        AttemptState.FINISHED,
        AttemptState.LOST,
        AttemptState.REFUSED,
    }
    assert not ends & {move.source for move in ATTEMPT_MOVES.moves}


@pytest.mark.parametrize(("moves", "states"), TABLES)
def test_the_drawn_page_is_fresh(moves: Moves[Any], states: Any) -> None:
    page = DRAWN.read_text(encoding="utf-8")
    for move in moves.moves:
        assert f"{move.source.name} --> {move.to.name}" in page
        assert move.why in page
    names = {state.name for state in states}
    arrows = [line.split() for line in page.splitlines() if "-->" in line]
    drawn = {(words[0], words[2].rstrip(":")) for words in arrows if {words[0]} <= names}
    listed = {(move.source.name, move.to.name) for move in REQUEST_MOVES.moves}
    listed |= {(move.source.name, move.to.name) for move in ATTEMPT_MOVES.moves}
    listed |= {(move.source.name, move.to.name) for move in GROUP_MOVES.moves}
    assert {pair for pair in drawn if pair[1] != "[*]"} <= listed
