"""Runs the checks that the models of `docs/design/models/` list in their heads.

A check is a line `KIND | SWITCHES | VERDICT | note`; `hand` before the kind keeps it out of the
usual run. The verdict is `holds N`, with N the number of states, or `finds TEXT`, with a part of
the claim that must break.
Needs Debian's `spin` and a C compiler.
"""

import argparse
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final, NamedTuple

__all__ = ["MODELS", "Check", "Move", "Seen", "checks", "missing_program", "moves_written", "run"]

MODELS: Final = Path(__file__).parents[1] / "docs" / "design" / "models"
"""Where the models are."""

QUICK_S: Final = 240
"""What a check that is not marked `hand` may take at most, in seconds."""

HAND_S: Final = 4 * 3600

_COMPILE: Final = {
    "safety": ("-DSAFETY", "-DCOLLAPSE"),
    "moves": ("-DSAFETY", "-DCOLLAPSE"),
    "hash": ("-DSAFETY", "-DHC4"),
    "live": ("-DNFAIR=4", "-DCOLLAPSE"),
    "cycles": ("-DNP", "-DCOLLAPSE"),
    "hashcycles": ("-DNP", "-DHC4"),
}
_SEARCH: Final = {
    "safety": ("-m300000", "-E"),
    "moves": ("-m300000", "-E"),
    "hash": ("-m300000", "-E", "-w26"),
    "live": ("-m2000000", "-a", "-f"),
    "cycles": ("-m2000000", "-E", "-l"),
    "hashcycles": ("-m2000000", "-E", "-l", "-w25"),
}
_LINE: Final = re.compile(
    r"^ +(?P<hand>hand )?(?P<kind>\w+)(?: (?P<claim>\w+))? +\|"
    r"(?P<switches>(?: -D[\w=]+)*) +\| "
    r"(?:holds (?P<states>[\d,]+)|finds(?: (?P<finds>[^|]+?))?) +\|"
)
_WRITTEN: Final = re.compile(r"MOVE_(REQUEST|ATTEMPT)\((?:\w[^,()]*, )?([A-Z]+), ([A-Z]+)\)")


class Move(NamedTuple):
    """A move between two states: of `request` or `attempt`, from, to."""

    of: str
    source: str
    to: str


@dataclass(frozen=True, slots=True)
class Check:
    """One run of the checker, and what must come of it: a number of states, or a broken claim."""

    model: str
    line: int
    hand: bool
    kind: str
    claim: str
    switches: tuple[str, ...]
    states: int | None
    finds: str

    @property
    def name(self) -> str:
        """What it is, in one line."""
        return " ".join([self.model, self.kind, *filter(None, [self.claim]), *self.switches])


@dataclass(frozen=True, slots=True)
class Seen:
    """What the checker said: the claim that broke, if any, and how much it looked at."""

    broken: str
    states: int
    moves: frozenset[Move]
    seconds: float

    def objection(self, check: Check) -> str:
        """Say how this differs from what must come of a check; empty if it does not."""
        if check.states is None:
            return "" if check.finds in self.broken and self.broken else f"broke: {self.broken!r}"
        if self.broken:
            return f"broke: {self.broken!r}"
        return "" if self.states == check.states else f"{self.states:,} states"


def missing_program() -> str | None:
    """Name a program that is needed and not there."""
    return next((name for name in ("spin", "gcc") if shutil.which(name) is None), None)


def checks(model: str) -> list[Check]:
    """Read the checks from the head of a model.

    Raises:
        ValueError: If it lists none, or one of a kind that is not known.
    """
    found: list[Check] = []
    text = (MODELS / f"{model}.pml").read_text(encoding="utf-8")
    for number, line in enumerate(text.partition("*/")[0].splitlines(), start=1):
        match = _LINE.match(line)
        if match is None:
            continue
        if match["kind"] not in _COMPILE:
            raise ValueError(f"{model}.pml:{number}: no kind of check: {match['kind']}")
        found.append(
            Check(
                model=model,
                line=number,
                hand=bool(match["hand"]),
                kind=match["kind"],
                claim=match["claim"] or "",
                switches=tuple(match["switches"].split()),
                states=int(match["states"].replace(",", "")) if match["states"] else None,
                finds=match["finds"] or "",
            )
        )
    if not found:
        raise ValueError(f"{model}.pml lists no check")
    return found


def moves_written(model: str) -> frozenset[Move]:
    """Read from a model's text which moves it makes."""
    text = (MODELS / f"{model}.pml").read_text(encoding="utf-8")
    return frozenset(Move(of.lower(), source, to) for of, source, to in _WRITTEN.findall(text))


def run(check: Check) -> Seen:
    """Make the checker of a check and let it search.

    Raises:
        RuntimeError: If the model cannot be compiled or the search does not come to its end.
    """
    with TemporaryDirectory(prefix="stagemesh-model-") as folder:
        place = Path(folder)
        model = MODELS / f"{check.model}.pml"
        extra = {"moves": ("-DMOVES",), "live": ("-DLIVE",)}.get(check.kind, ())
        _call(["spin", "-a", *extra, *check.switches, str(model)], place)
        # A checker that soon ends takes longer to optimise than to run.
        effort = "-O2" if check.hand else "-O0"
        _call(["gcc", effort, "-w", *_COMPILE[check.kind], "-o", "pan", "pan.c"], place)
        claim = ("-N", check.claim) if check.claim else ()
        limit_s = HAND_S if check.hand else QUICK_S
        began_s = monotonic()
        said = _call(["./pan", *_SEARCH[check.kind], *claim, "-n"], place, limit_s=limit_s)
        return _read(check, said, monotonic() - began_s)


def _call(command: list[str], place: Path, limit_s: float = QUICK_S) -> str:
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, timeout=limit_s
    )
    if done.returncode or "Error:" in done.stdout:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _read(check: Check, said: str, seconds: float) -> Seen:
    states = re.search(r"(\S+) states, stored", said)
    ended = re.search(r"errors: (\d+)", said)
    if states is None or ended is None or "out of memory" in said or "max search depth" in said:
        raise RuntimeError(f"{check.name}: the search did not come to its end:\n{said[-2000:]}")
    broken = re.search(r"^pan:1: (.*) \(at depth", said, re.MULTILINE)
    if (broken is None) != (ended[1] == "0"):
        raise RuntimeError(f"{check.name}: cannot be read:\n{said[-2000:]}")
    took = re.findall(r"^took (\w+) (\w+) (\w+)$", said, re.MULTILINE)
    return Seen(
        broken="" if broken is None else re.sub(r"\s", "", broken[1]),
        states=int(float(states[1])),
        moves=frozenset(Move(*move) for move in took),
        seconds=seconds,
    )


def _rewrite(check: Check, seen: Seen) -> None:
    """Put the number of states that was seen into the head of a model."""
    path = MODELS / f"{check.model}.pml"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    at = check.line - 1
    lines[at] = re.sub(r"holds [\d,]+", f"holds {seen.states:,}", lines[at], count=1)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> int:
    """Run checks; 1 if one came out otherwise than its line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.models", description=__doc__)
    parser.add_argument("models", nargs="*", default=sorted(p.stem for p in MODELS.glob("*.pml")))
    parser.add_argument("--all", action="store_true", help="also those marked `hand`")
    parser.add_argument("--write", action="store_true", help="note the numbers of states")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    wanted = parser.parse_args()
    if (missing := missing_program()) is not None:
        print(f"{missing} is missing; on Debian: apt-get install spin gcc", file=sys.stderr)
        return 1
    todo = [c for model in wanted.models for c in checks(model) if wanted.all or not c.hand]
    wrong, held = 0, list[tuple[Check, Seen]]()
    with ThreadPoolExecutor(wanted.jobs) as pool:
        for check, seen in zip(todo, pool.map(run, todo), strict=True):
            if wanted.write and check.states is not None and not seen.broken:
                held.append((check, seen))
                check = replace(check, states=seen.states)  # noqa: PLW2901
            objection = seen.objection(check)
            wrong += bool(objection)
            said = f"{check.name}: {seen.states:,} states, {seen.seconds:.1f} s {objection}"
            print(said.rstrip(), flush=True)
    for check, seen in held:
        _rewrite(check, seen)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
