"""The models of `docs/design/models/` hold, make the moves of the code, and can fail."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest

from services.orchestrator.core.moves import ATTEMPT_MOVES, REQUEST_MOVES, Moves
from tools.models import MODELS, Check, Move, Seen, checks, missing_program, moves_written, run

NAMES: Final = sorted(path.stem for path in MODELS.glob("*.pml"))
CHECKS: Final = [check for name in NAMES for check in checks(name)]
QUICK: Final = [check for check in CHECKS if not check.hand]
MOVING: Final = [check for check in QUICK if check.kind == "moves"]

# In CI nothing is missing: `.ci/run` installs both programs before it calls `make test`.
MISSING: Final = missing_program()
needs_spin: Final = pytest.mark.skipif(MISSING is not None, reason=f"{MISSING} is not installed")


def listed(moves: Moves[Any]) -> set[Move]:
    return {Move(moves.title, move.source.name, move.to.name) for move in moves.moves}


IN_THE_CODE: Final = listed(REQUEST_MOVES) | listed(ATTEMPT_MOVES)


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[Check, Future[Seen]]]:
    """Run all quick checks, two at a time, while the tests wait for theirs."""
    with ThreadPoolExecutor(2) as pool:
        futures = {check: pool.submit(run, check) for check in QUICK}
        yield futures
        for future in futures.values():
            future.cancel()


@needs_spin
@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", QUICK, ids=lambda check: check.name)
def test_a_check_comes_out_as_its_line_says(check: Check, runs: dict[Check, Future[Seen]]) -> None:
    assert runs[check].result().objection(check) == ""


@pytest.mark.invariant("ORCH-INV-107")
@needs_spin
@pytest.mark.timeout(300)
def test_the_checker_takes_exactly_the_moves_of_the_tables(
    runs: dict[Check, Future[Seen]],
) -> None:
    taken = set[Move]().union(*(runs[check].result().moves for check in MOVING))
    assert taken == IN_THE_CODE


def test_the_models_are_written_in_the_moves_of_the_tables() -> None:
    written = set[Move]().union(*map(moves_written, NAMES))
    assert written == IN_THE_CODE


def test_one_model_has_every_move_of_an_attempt() -> None:
    assert listed(ATTEMPT_MOVES) <= moves_written("request")


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_that_a_model_can_do_without_is_seen_to_matter(name: str) -> None:
    text = (MODELS / f"{name}.pml").read_text(encoding="utf-8").partition("*/")[2]
    rules = {word.strip("()") for word in text.replace("(", " ").split() if word[:2] == "M_"}
    finding = [check for check in checks(name) if check.states is None]
    switched = {switch[2:] for check in finding for switch in check.switches}
    assert rules <= switched
    assert rules


def test_no_check_is_listed_twice_or_without_a_number() -> None:
    keys = [(check.model, check.kind, check.claim, check.switches) for check in CHECKS]
    assert len(set(keys)) == len(keys)
    assert [check.name for check in CHECKS if check.states == 0] == []
