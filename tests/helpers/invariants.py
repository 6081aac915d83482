"""The invariants of this system, and which tests prove each of them.

A test names what it proves with `@pytest.mark.invariant("ORCH-INV-100")`, or a module for all of
its tests with `pytestmark`. Numbers are append-only: 001-099 dependency direction, 100-199 state
and order, 200-299 failure, cancellation and cleanup, 300-399 extension points and shutdown.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.helpers.code import ROOT, parsed, sources

__all__ = ["INVARIANTS", "NOT_YET", "PAGE", "Invariant", "Proof", "page", "proofs"]

PAGE: Final = ROOT / "docs" / "design" / "invariants.md"
"""The page that is generated from all this."""


class Invariant(NamedTuple):
    """One rule that always holds."""

    name: str
    text: str


class Proof(NamedTuple):
    """A test that would be red if a rule did not hold."""

    invariant: str
    path: Path
    test: str


INVARIANTS: Final = (
    Invariant(
        "ORCH-INV-001",
        "Only the orchestrator gives work to a stage; no gateway and no stage client does.",
    ),
    Invariant(
        "ORCH-INV-002",
        "A stage client and a stage worker communicate; neither chooses the next stage.",
    ),
    Invariant("ORCH-INV-003", "What a worker sends speaks of its own stage only."),
    Invariant(
        "ORCH-INV-004",
        "What decides neither waits nor does I/O; the core takes time as an argument.",
    ),
    Invariant("ORCH-INV-100", "After a terminal state, nothing is started or fed for a request."),
    Invariant(
        "ORCH-INV-101",
        "An owner sends at most one terminal per request and epoch, as the last of it, and exactly"
        " one unless it was fenced, orphaned or handed the request back.",
    ),
    Invariant(
        "ORCH-INV-102",
        "Every attempt that was submitted ends once: finished, failed, refused, cancelled or lost.",
    ),
    Invariant(
        "ORCH-INV-103",
        "While a request is open there is a next wake-up; after enough time none is open.",
    ),
    Invariant(
        "ORCH-INV-104",
        "Nothing is sent without credit, and a key's credit ends with the key.",
    ),
    Invariant("ORCH-INV-105", "The same events at the same times give the same effects."),
    Invariant(
        "ORCH-INV-106",
        "No position is delivered twice or skipped, and none by a lower epoch than one seen.",
    ),
    Invariant(
        "ORCH-INV-107",
        "Requests, groups and attempts move by the tables, and the models make exactly the moves of"
        " requests and attempts.",
    ),
    Invariant(
        "ORCH-INV-108",
        "An output that cannot be made again is on its way to the gateway before a stage gets it.",
    ),
    Invariant(
        "ORCH-INV-109",
        "An owner under a higher epoch fences every replica in its reach before it submits.",
    ),
    Invariant(
        "ORCH-INV-112",
        "Where requests wait, tenants run in the proportion of their weights; none waits for ever,"
        " and none runs above its bounds.",
    ),
    Invariant(
        "ORCH-INV-120",
        "What happened to a request is written down for each transition, never for each output, and"
        " within a bound.",
    ),
    Invariant(
        "ORCH-INV-140",
        "Input for a request that is over or unknown starts nothing, and is answered once.",
    ),
    Invariant(
        "ORCH-INV-141",
        "A conversation counts as running only while there is something to do for it.",
    ),
    Invariant(
        "ORCH-INV-142",
        "A client gets credit for what every stage was sent that hears it as it speaks, only.",
    ),
    Invariant(
        "ORCH-INV-143",
        "Each finished segment of a streamed input is one run of a stage that reads it so, in"
        " order; the end of a run is no end of the request.",
    ),
    Invariant(
        "ORCH-INV-144",
        "A change of the prompt is answered once, and an error of it stays with it.",
    ),
    Invariant(
        "ORCH-INV-145",
        "Another attempt takes a change of the prompt where the lost one took it; one that nobody"
        " answered lets nothing be gone on from.",
    ),
    Invariant(
        "ORCH-INV-200",
        "One request's failure changes no other, except through a replica that they share.",
    ),
    Invariant("ORCH-INV-201", "Nothing is kept of a request that is over but its tombstone."),
    Invariant(
        "ORCH-INV-202",
        "An abort reaches an attempt at most once, and what waits for a replica at once.",
    ),
    Invariant(
        "ORCH-INV-203", "An engine slot is free when its worker says so, and never given twice."
    ),
    Invariant(
        "ORCH-INV-204",
        "Whatever is lost, what the client has is never contradicted: the stream goes on, or ends"
        " typed.",
    ),
    Invariant("ORCH-INV-205", "A worker takes nothing of a request below the highest epoch seen."),
    Invariant("ORCH-INV-206", "A request that is ending becomes no orphan and is not re-driven."),
    Invariant("ORCH-INV-207", "What outgrows the journal fails the request; it waits for nothing."),
    Invariant("ORCH-INV-208", "A request that is handed back leaves no attempt running."),
    Invariant(
        "ORCH-INV-210",
        "A detachable request waits for its next gateway with what that has not got; what works on"
        " it works on, and nothing is started.",
    ),
    Invariant(
        "ORCH-INV-211",
        "A detachable request is complete only when its gateway has confirmed all of it.",
    ),
    Invariant(
        "ORCH-INV-212",
        "An owner goes on with its own journal for another gateway only if no other owner had the"
        " request since; one without the journal begins only what gave nothing, or everything.",
    ),
    Invariant(
        "ORCH-INV-220",
        "A request that was aborted by its id is opened by no orchestrator that was told, under any"
        " epoch, for `tombstone_s`.",
    ),
    Invariant(
        "ORCH-INV-221",
        "Who aborts and asks for partials is given what was made, in order, before the terminal;"
        " nobody else is given anything more.",
    ),
    Invariant(
        "ORCH-INV-230",
        "A control call is answered once, for each replica that it went to; one that fails harms no"
        " request.",
    ),
    Invariant("ORCH-INV-231", "An engine that sleeps has no work, and is told nothing twice."),
    Invariant(
        "ORCH-INV-232",
        "What operators want of a pool is done to a new incarnation before it gets work, until it"
        " is undone.",
    ),
    Invariant(
        "ORCH-INV-233",
        "Only requests that need a pool which operators closed are held or refused.",
    ),
    Invariant("ORCH-INV-300", "The orchestrators of a mesh stop before the workers they drive."),
    Invariant(
        "ORCH-INV-320",
        "What is written down of the core's inputs holds no content, and decides the same.",
    ),
    Invariant(
        "ENTRY-INV-001", "An entrypoint adapts; it knows no pipeline and routes between no stages."
    ),
    Invariant(
        "ENTRY-INV-100",
        "Public values are checked and converted to the internal request once, before submission.",
    ),
    Invariant(
        "ENTRY-INV-101",
        "Every streamed piece stays tied to the request, choice and modality that it is of.",
    ),
    Invariant("ENTRY-INV-102", "A gateway commits one end of a request: the first, and the last."),
    Invariant(
        "ENTRY-INV-200",
        "A gateway takes frames of its current epoch, from the link on which it was opened, only.",
    ),
    Invariant(
        "PAYLOAD-INV-100",
        "Bytes that a reader got of a handle never change, however long it keeps them, and it gets"
        " none of another handle.",
    ),
)

NOT_YET: Final = {"ENTRY-INV-002": ROOT / "stagemesh" / "realtime"}
"""Rules of parts that are not built: each by the folder with which it will be claimed."""


def _named(node: ast.expr) -> Iterator[str]:
    """Give the invariants that an expression marks something with."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.invariant":
            yield from (ast.literal_eval(argument) for argument in call.args)


def proofs() -> list[Proof]:
    """Find every mark in the tests."""
    found: list[Proof] = []
    for path in sources("tests"):
        for node in parsed(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                marks = [name for mark in node.decorator_list for name in _named(mark)]
                found += [Proof(name, path, node.name) for name in marks]
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                found += [Proof(name, path, "") for name in _named(node.value)]
    return found


def page() -> str:
    """Write the page."""
    lines = [
        "# Invariants",
        "",
        "What always holds, and the tests that prove it; generated from"
        " `tests/helpers/invariants.py` by `python -m tests.helpers.invariants`.",
        "Models of the protocol are in [models](models/recovery.pml); `make mutants` breaks the"
        " rules in the code one by one, and needs a red test for each.",
        "",
        "| invariant | text | proved by |",
        "|---|---|---|",
    ]
    everything = proofs()
    for name, text in INVARIANTS:
        links = [_link(proof) for proof in everything if proof.invariant == name]
        lines.append(f"| {name} | {text} | {'<br>'.join(sorted(links))} |")
    names = ", ".join(sorted(NOT_YET))
    lines += ["", f"Not claimed yet, because what it is about is not built: {names}.", ""]
    return "\n".join(lines)


def _link(proof: Proof) -> str:
    path = proof.path.relative_to(ROOT).as_posix()
    return f"[{proof.test or proof.path.stem}](../../{path})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
