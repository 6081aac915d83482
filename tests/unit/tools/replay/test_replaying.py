"""Dumps that are fed to a new core."""

from pathlib import Path

import msgspec
import pytest

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.effects import Effect
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.driver import Dump, Recorder, read_dump, write_dump
from services.orchestrator.driver.dumps import Ended
from stagemesh.link.core import Row
from stagemesh.pipeline import Mesh
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_stage import CoreStage, make_request
from tools.replay import replay


class Taped(CoreStage):
    """A core whose inputs are recorded, as a driver does it."""

    def __init__(self, events_max: int = 4096) -> None:
        self.recorder = Recorder(["echo", "talk", "twice", "paint"], events_max=events_max)
        super().__init__(mirrors=True)

    def do(self, event: ev.Event) -> list[Effect]:
        """Record an event, and step it."""
        self.recorder.take(event, self.now_s)
        effects = super().do(event)
        self.recorder.gave(effects)
        return effects

    def dump(self, tmp_path: Path) -> Dump:
        """Write what was recorded, and read it again."""
        recording = self.recorder.kept()
        dump = Dump(
            orchestrator_id="o-0",
            incarnation=1,
            reason="asked",
            settings=CoreSettings(),
            revisions={name: one.revision for name, one in core_mesh().pipelines.items()},
            skipped=recording.skipped,
            standing=recording.standing(),
            steps=recording.steps(),
        )
        write_dump(dump, tmp_path / "a.dump")
        return read_dump(tmp_path / "a.dump")


def a_life(stage: Taped) -> None:
    """A request that goes on after a loss, and one with two stages that is aborted."""
    first, _ = stage.replica("thinker", ResumeContract.TOKENS)
    second, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.replica("talker", ResumeContract.REPLAY)
    one, _ = stage.open(make_request("echo"))
    stage.rows(first, said(1, 0))
    stage.now_s = 1.0
    stage.lose(first)
    stage.wait(1.0)
    stage.rows(second, said(1, 1, end=True))
    stage.open(make_request("talk"))
    stage.rows(second, said(2, 0), said(2, 1))
    stage.do(ev.AbortAsked(link=1, slot=2, cause="asked"))
    stage.wait(2.0)
    assert one == 1


def said(slot: int, pos: int, *, end: bool = False) -> Row:
    row = CoreStage.text(slot, pos, "secret", end=end)
    row.ids = [pos]
    return row


@pytest.mark.invariant("ORCH-INV-320")
def test_a_dump_from_the_start_gives_the_same_effects_without_the_content(tmp_path: Path) -> None:
    stage = Taped()
    a_life(stage)
    dump = stage.dump(tmp_path)
    verdict = replay(dump, core_mesh())

    assert verdict.exact
    assert verdict.differences == ()
    assert verdict.raised is None
    assert verdict.steps == len(dump.steps) > 10
    assert {one.outcome for step in dump.steps for one in step.ended} == {1, 3}
    assert b"secret" not in (tmp_path / "a.dump").read_bytes()


def test_a_step_that_goes_otherwise_is_named(tmp_path: Path) -> None:
    stage = Taped()
    a_life(stage)
    dump = stage.dump(tmp_path)
    kept = tuple(step for step in dump.steps if not isinstance(step.event, ev.ReplicaLost))
    without = msgspec.structs.replace(dump, steps=kept)
    verdict = replay(without, core_mesh())
    assert verdict.differences
    assert "step" in verdict.differences[0]


def test_a_failure_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Taped()
    stage.replica("thinker")

    def broken(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("services.orchestrator.core.opening.keep_given", broken)
    with pytest.raises(KeyError):
        stage.open(make_request("echo"))
    dump = stage.dump(tmp_path)
    assert dump.steps[-1].effects is None

    verdict = replay(dump, core_mesh())
    assert isinstance(verdict.raised, KeyError)
    assert verdict.differences == ()


def test_a_failure_that_does_not_come_back_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_failure_comes_back(tmp_path, monkeypatch)
    monkeypatch.undo()
    verdict = replay(read_dump(tmp_path / "a.dump"), core_mesh())
    assert verdict.raised is None
    assert "raised" in verdict.differences[-1]


@pytest.mark.parametrize("before", [1, 7])
def test_a_dump_that_begins_late_plays_what_was_opened_in_it(tmp_path: Path, before: int) -> None:
    stage = Taped(events_max=12)
    thinker, _ = stage.replica("thinker", slots=100)
    for _ in range(before):
        slot, _ = stage.open(make_request("echo"))
        stage.rows(thinker, CoreStage.text(slot, 0, "a"), CoreStage.text(slot, 1, "b", end=True))
    stage.open(make_request("twice"))
    for _ in range(12):
        stage.wait(0.1)
    late, _ = stage.open(make_request("echo"))
    slot = late  # On the replica, attempts and requests count alike here.
    stage.rows(thinker, CoreStage.text(slot, 0, "a"))
    stage.rows(thinker, CoreStage.text(before + 1, 0, "a"), CoreStage.text(slot, 1, "b", end=True))
    dump = stage.dump(tmp_path)
    assert dump.skipped > 0
    assert [one.outcome for step in dump.steps for one in step.ended] == [1]

    verdict = replay(dump, core_mesh())
    assert not verdict.exact
    assert verdict.left_out == 1, "an output of a request that was opened before"
    assert verdict.differences == ()
    assert verdict.raised is None


def test_a_late_dump_whose_request_ends_otherwise_says_so(tmp_path: Path) -> None:
    stage = Taped(events_max=3)
    thinker, _ = stage.replica("thinker")
    stage.wait(1.0)
    stage.open(make_request("echo"))
    stage.rows(thinker, CoreStage.text(1, 0, "a", end=True))
    dump = stage.dump(tmp_path)
    assert dump.skipped > 0
    assert replay(dump, core_mesh()).differences == ()
    *steps, last = dump.steps
    failed = msgspec.structs.replace(last, ended=(Ended("r1", 2),))
    changed = msgspec.structs.replace(dump, steps=(*steps, failed))
    assert replay(changed, core_mesh()).differences == ("r1 ended otherwise, or not at all",)


def test_another_mesh_is_refused(tmp_path: Path) -> None:
    dump = Taped().dump(tmp_path)
    with pytest.raises(ValueError, match="another mesh"):
        replay(dump, Mesh(pools={}, pipelines={}))
