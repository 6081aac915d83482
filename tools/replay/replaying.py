"""Plays a dump on a new core.

A dump that begins with the core is exact: every step must give the same kinds of effects, the same
submissions and the same ends, and a failure must come back. One that begins later says who is
linked, but not what was open: requests that were opened before it are left out, and those opened
in it are played with the slots that the new core gives them. Then only their ends are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from services.orchestrator.core import events as ev
from services.orchestrator.core.effects import Effect, EndRequest, SubmitAttempts
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.driver import Dump, Step
from stagemesh.link.core import Grant, Row
from stagemesh.pipeline import Mesh

__all__ = ["Replay", "Verdict", "replay"]


class Verdict(NamedTuple):
    """What came of a replay: what differs, in words, and what the core raised, if it did."""

    exact: bool
    steps: int
    left_out: int
    differences: tuple[str, ...]
    raised: Exception | None


class _Key(NamedTuple):
    """An attempt, whatever slot it has."""

    request_id: str
    epoch: int
    attempt: int
    stage: int
    role: int


@dataclass(slots=True)
class Replay:
    """A new core, and how its slots stand for those of the dump."""

    core: Orchestrator
    exact: bool
    links: set[int] = field(default_factory=set)
    """Of workers."""
    slots: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    opened: set[tuple[int, int]] = field(default_factory=set)
    keys: dict[_Key, tuple[int, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    left_out: int = 0

    def step(self, step: Step) -> list[Effect]:
        """Play one input; give the effects."""
        effects: list[Effect] = []
        for event in [step.event] if self.exact else self._translated(step.event):
            effects += self.core.step(event, step.now_s)
        for effect in effects:
            if isinstance(effect, SubmitAttempts):
                self._note(effect)
            elif isinstance(effect, EndRequest):
                self.ends[effect.request_id] = int(effect.terminal.outcome)
        for told in step.submitted:
            key = _Key(told.request_id, told.epoch, told.attempt, told.stage, told.role)
            if key in self.keys:
                self.slots[told.link, told.slot] = self.keys[key]
        return effects

    def _note(self, effect: SubmitAttempts) -> None:
        for role in effect.roles:
            key = _Key(effect.request_id, effect.epoch, effect.attempt, effect.stage, role.role)
            self.keys[key] = (effect.link, role.slot)

    def _translated(self, event: ev.Event) -> Iterator[ev.Event]:
        """Give an event in the slots of this core; what concerns nobody here is left out."""
        match event:
            case ev.ReplicaAttached(link=link):
                self.links.add(link)
                yield event
            case ev.Opened(link=link, slot=slot):
                self.opened.add((link, slot))
                yield event
            case ev.RowsArrived(link=link, rows=rows):
                yield from self._rows(link, rows)
            case ev.InputCreditGranted(link=link, grants=grants):
                yield from self._grants(link, grants)
            case ev.AttemptEnded() | ev.AttemptUnknown() | ev.HandedBack() | ev.HandleLost():
                if isinstance(event, ev.HandleLost) and event.link not in self.links:
                    yield event
                elif (event.link, event.slot) in self.slots:
                    link, slot = self.slots[event.link, event.slot]
                    yield msgspec.structs.replace(event, link=link, slot=slot)
                else:
                    self.left_out += 1
            case ev.AbortAsked(link=link, slot=slot) | ev.FenceRaised(link=link, slot=slot):
                if (link, slot) in self.opened:
                    yield event
                else:
                    self.left_out += 1
            case _:
                yield event

    def _rows(self, link: int, rows: list[Row]) -> Iterator[ev.Event]:
        by_link: dict[int, list[Row]] = {}
        for row in rows:
            found = self.slots.get((link, row.slot))
            if found is None:
                self.left_out += 1
            else:
                row.slot = found[1]
                by_link.setdefault(found[0], []).append(row)
        for at, those in by_link.items():
            yield ev.RowsArrived(link=at, rows=those)

    def _grants(self, link: int, grants: list[Grant]) -> Iterator[ev.Event]:
        for grant in grants:
            found = self.slots.get((link, grant.slot))
            if found is None:
                self.left_out += 1
            else:
                moved = Grant(found[1], grant.source, grant.units, grant.bytes)
                yield ev.InputCreditGranted(link=found[0], grants=[moved])


def replay(dump: Dump, mesh: Mesh) -> Verdict:
    """Play a dump on a new core of a mesh, which must be the one that it was taken on.

    Raises:
        ValueError: If the mesh has other pipelines.
    """
    revisions = {name: pipeline.revision for name, pipeline in mesh.pipelines.items()}
    if revisions != dump.revisions:
        raise ValueError("The dump was taken on another mesh.")
    run = Replay(Orchestrator(mesh, dump.settings), exact=not dump.skipped)
    differences: list[str] = []
    expected: dict[str, int] = {}
    raised: Exception | None = None
    for number, step in enumerate((*dump.standing, *dump.steps)):
        try:
            effects = run.step(step)
        except Exception as error:  # What the core raises is what the dump was written for.
            raised = error
            break
        expected.update((one.request_id, one.outcome) for one in step.ended)
        if run.exact:
            differences += _compared(number, step, effects)
    if not run.exact:
        differences += _compared_ends(run, expected)
    return Verdict(
        exact=run.exact,
        steps=len(dump.steps),
        left_out=run.left_out,
        differences=tuple(differences),
        raised=raised,
    )


def _compared(number: int, step: Step, effects: list[Effect]) -> Iterator[str]:
    where = f"step {number} ({type(step.event).__name__} at {step.now_s:.6f} s)"
    if step.effects is None:
        yield f"{where}: the core raised there, and here it did not"
        return
    kinds = tuple(type(effect).__name__ for effect in effects)
    if kinds != step.effects:
        yield f"{where}: {list(step.effects)} became {list(kinds)}"
    slots: list[Any] = [
        (effect.link, role.slot)
        for effect in effects
        if isinstance(effect, SubmitAttempts)
        for role in effect.roles
    ]
    if slots != [(one.link, one.slot) for one in step.submitted]:
        yield f"{where}: other slots were submitted"
    ends = [
        (effect.request_id, int(effect.terminal.outcome))
        for effect in effects
        if isinstance(effect, EndRequest)
    ]
    if ends != [(one.request_id, one.outcome) for one in step.ended]:
        yield f"{where}: other ends"


def _compared_ends(run: Replay, expected: dict[str, int]) -> Iterator[str]:
    played = {key.request_id for key in run.keys}
    for request_id, outcome in expected.items():
        if request_id in played and run.ends.get(request_id) != outcome:
            yield f"{request_id} ended otherwise, or not at all"
