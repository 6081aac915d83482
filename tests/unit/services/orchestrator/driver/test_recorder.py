"""The ring of the core's last inputs."""

import pytest

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.driver import Recorder, Step
from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.media import Body, Modality, Request, lane_of
from tests.helpers.core_stage import CoreStage, make_request

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(0, 0, Modality.AUDIO)


def rows(*texts: str, slot: int = 1) -> ev.RowsArrived:
    return ev.RowsArrived(link=2, rows=[Row(slot, TEXT, at, 1, t) for at, t in enumerate(texts)])


def kept(recorder: Recorder) -> tuple[Step, ...]:
    return recorder.kept().steps()


def test_what_the_core_does_to_rows_is_not_in_the_record() -> None:
    stage, recorder = CoreStage(mirrors=True), Recorder(["echo"])
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.open(make_request("echo"))
    stage.open(make_request("echo"))
    event = ev.RowsArrived(link=thinker, rows=[CoreStage.text(2, 0, "a")])
    event.rows[0].visible = True
    recorder.take(event, 1.0)
    stage.do(event)
    event.rows[0].slot, event.rows[0].visible = 99, False

    [step] = kept(recorder)
    assert isinstance(step.event, ev.RowsArrived)
    assert [(row.slot, row.visible) for row in step.event.rows] == [(2, True)]


@pytest.mark.invariant("ORCH-INV-320")
def test_content_is_left_out_and_sizes_stay() -> None:
    recorder = Recorder(["echo"])
    recorder.take(rows("secret", "x"), 1.0)
    [step] = kept(recorder)
    assert isinstance(step.event, ev.RowsArrived)
    assert [row.text for row in step.event.rows] == ["xxxxxx", "x"]


def test_the_ring_is_bounded_by_number() -> None:
    recorder = Recorder([], events_max=3)
    for at in range(10):
        recorder.take(ev.Tick(), float(at))
    assert [step.now_s for step in kept(recorder)] == [7.0, 8.0, 9.0]
    assert recorder.kept().skipped == 7


def test_the_ring_is_bounded_by_what_it_holds_on_to() -> None:
    recorder = Recorder([], bytes_max=100)
    for at in range(10):
        recorder.take(rows("x" * 30, "y" * 10), float(at))
    assert len(recorder) == 2
    pcm = Row(1, AUDIO, 0, 1, body=Body(inline=bytes(90)))
    recorder.take(ev.RowsArrived(link=2, rows=[pcm]), 11.0)
    assert len(recorder) == 1
    recorder.take(rows("z" * 1000), 12.0)
    assert len(recorder) == 1, "the last one is always there"


def test_what_came_of_a_step_stands_beside_it() -> None:
    stage, recorder = CoreStage(), Recorder(["echo"])
    thinker, _ = stage.replica("thinker")
    _, effects = stage.open(make_request("echo", choices=2))
    recorder.take(ev.Tick(), 1.0)
    recorder.gave(effects)
    recorder.take(ev.Tick(), 2.0)
    recorder.gave(
        stage.rows(thinker, *(CoreStage.text(s, 0, "a", role=s - 1, end=True) for s in (1, 2)))
    )
    recorder.take(ev.Tick(), 3.0)

    opened, ended, last = kept(recorder)
    assert opened.effects == ("SubmitAttempts",)
    assert [(one.link, one.slot, one.role) for one in opened.submitted] == [
        (thinker, 1, 0),
        (thinker, 2, 1),
    ]
    assert [(one.request_id, one.outcome) for one in ended.ended] == [("r1", 1)]
    assert last.effects is None, "the core has not answered"


def test_who_is_linked_is_known_however_long_ago_they_came() -> None:
    recorder = Recorder([], events_max=1)
    recorder.take(ev.ClientAttached(link=1, window_units=1, window_bytes=1), 0.0)
    recorder.take(ev.ClientAttached(link=2, window_units=1, window_bytes=1), 1.0)
    recorder.take(ev.ReplicaListed(replica_id="t-0", listed=False), 2.0)
    recorder.take(ev.ReplicaListed(replica_id="t-1", listed=False), 3.0)
    recorder.take(ev.ClientLost(link=1), 4.0)
    recorder.take(ev.ReplicaListed(replica_id="t-0", listed=True), 5.0)
    recorder.take(ev.Tick(), 6.0)

    assert [step.event for step in recorder.kept().standing()] == [
        ev.ClientAttached(link=2, window_units=1, window_bytes=1),
        ev.ReplicaListed(replica_id="t-1", listed=False),
    ]


def test_a_recording_does_not_change_any_more() -> None:
    recorder = Recorder([], events_max=2)
    recorder.take(ev.Tick(), 1.0)
    recording = recorder.kept()
    for at in (2.0, 3.0, 4.0):
        recorder.take(ev.Tick(), at)
    assert [step.now_s for step in recording.steps()] == [1.0]
    assert recording.skipped == 0


def test_what_a_client_says_piece_by_piece_counts_too() -> None:
    recorder = Recorder([], bytes_max=100)
    for at in range(10):
        row = Row(1, REQUEST_SOURCE, at, 1, body=Body(inline=bytes(90)))
        recorder.take(ev.InputsAppended(link=1, rows=[row]), float(at))
    assert len(recorder) <= 2


def test_and_so_does_what_a_takeover_brings_of_it() -> None:
    recorder = Recorder([], bytes_max=100)
    for at in range(10):
        row = Row(1, REQUEST_SOURCE, at, 1, body=Body(inline=bytes(90)))
        opened = ev.Opened(
            link=1, slot=at, request_id="r", epoch=2, deadline_left_s=0.0,
            request=Request(model="m", messages=()), body=None, streamed=True, inputs=[row],
        )  # fmt: skip
        recorder.take(opened, float(at))
    assert len(recorder) <= 2
