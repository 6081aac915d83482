"""The core's rules together: what one of them leaves alone, another must not break."""

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import WorkerCard, WorkerState
from services.orchestrator.core.settings import CoreSettings
from stagemesh.control import Call, Gate, Pause, PauseMode, Resume
from stagemesh.link.core import REQUEST_SOURCE, Grant, LaneJournal, Row
from stagemesh.media import Modality, TextPart, lane_of
from stagemesh.outcome import Outcome, Terminal, error_for
from stagemesh.pipeline import parse_mesh
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind

FULL = Terminal(outcome=Outcome.REJECTED, error=error_for("no_slot"))
LT = lane_of(0, 0, Modality.TEXT)
MT = lane_of(1, 0, Modality.TEXT)
OPEN = Gate()
KEPT = Gate(paused=PauseMode.KEEP)

DUET = """\
pools:
  encoder: {engine: synthetic, options: {gives: tensor}}
  painter: {engine: synthetic, options: {gives: image}}
pipelines:
  duet:
    deadline_s: 60
    limits: {running_max: 1, waiting_max: 5}
    stages:
      encoder:
        pool: encoder
        inputs: [{from: input, mode: stream}]
        bridge: script
        companions: [negative]
        join_s: 2
      painter: {pool: painter, inputs: [{from: encoder, modality: tensor}], bridge: script}
    outputs: {image: painter}
"""

CHAIN = """\
pools:
  shared: {engine: synthetic}
pipelines:
  chain:
    deadline_s: 600
    stages:
      maker: {pool: shared}
      reader: {pool: shared, inputs: [{from: maker, mode: stream}]}
    outputs: {text: reader}
"""

PREFIXED = """\
pools:
  thinker: {engine: synthetic, options: {gives: text}}
  listener: {engine: synthetic, options: {gives: text}}
pipelines:
  prefixed:
    deadline_s: 60
    stages:
      prefix: {pool: thinker, bridge: script}
      listener: {pool: listener, inputs: [prefix, {from: input, mode: segment}], bridge: script}
    outputs: {text: listener}
"""

SPOKEN = """\
pools:
  thinker: {engine: synthetic, options: {gives: text}}
  listener: {engine: synthetic, options: {gives: text}}
  reader: {engine: synthetic, options: {gives: audio}}
pipelines:
  spoken:
    deadline_s: 60
    stages:
      prefix: {pool: thinker, bridge: script}
      listener: {pool: listener, inputs: [prefix, {from: input, mode: segment}], bridge: script}
      talker: {pool: thinker, bridge: script}
      reader: {pool: reader, inputs: [{from: talker, mode: stream}], bridge: script}
    outputs: {text: listener, audio: reader}
"""


def ask(stage: CoreStage, call: Call, call_id: int = 1) -> list[fx.Effect]:
    pools = frozenset({"thinker"})
    return stage.do(ev.ControlAsked(call_id=call_id, call=call, wait_s=30.0, pools=pools))


def test_a_segment_may_be_longer_than_the_window() -> None:
    stage = CoreStage(CoreSettings(window_units=4))
    stage.replica("listener")
    stage.replica("mixer")
    slot, _ = stage.converse(make_request("turns"))
    grants = []
    for _ in range(4):  # all the credit that the client has
        grants += of_kind(stage.append(slot, "a"), fx.SendGrants)
    assert grants, "the client has no credit and the segment has not ended: it waits for ever"


def test_credit_for_a_segment_of_an_orphan_is_of_no_use() -> None:
    stage = CoreStage(mirrors=True)
    listener, _ = stage.replica("listener")
    mixer, _ = stage.replica("mixer", units=2)
    slot, _ = stage.converse(make_request("turns"))
    stage.append(slot, "a", segment_end=True)
    stage.rows(listener, *(Row(1, LT, at, 1, "x") for at in range(6)), Row(1, LT, 6, 0, end=END))
    stage.do(ev.ClientLost(link=1))
    stage.do(ev.InputCreditGranted(link=mixer, grants=[Grant(1, LT, 4, 1 << 21)]))


def test_a_refusal_long_after_another_is_tried_again() -> None:
    stage = CoreStage()
    a, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.open(make_request("echo"))
    stage.do(ev.AttemptEnded(link=a, slot=1, terminal=FULL))
    (sub,) = of_kind(stage.wait(0.1), fx.SubmitAttempts)
    stage.rows(a, Row(2, LT, 0, 1, "a", [1]))
    stage.now_s += 20
    stage.rows(a, Row(2, LT, 1, 1, "b", [2]))
    effects = stage.do(ev.HandedBack(link=a, slot=2))
    (sub,) = of_kind(effects + stage.wait(0.1), fx.SubmitAttempts)
    effects = stage.do(ev.AttemptEnded(link=a, slot=sub.roles[0].slot, terminal=FULL))
    assert not of_kind(effects, fx.EndRequest), of_kind(effects, fx.EndRequest)


def test_two_turns_of_a_conversation_may_each_be_refused_once() -> None:
    stage = CoreStage()
    listener, _ = stage.replica("listener")
    stage.replica("mixer")
    slot, _ = stage.converse(make_request("turns"))
    stage.append(slot, "a", segment_end=True)
    stage.do(ev.AttemptEnded(link=listener, slot=1, terminal=FULL))
    (sub,) = of_kind(stage.wait(0.1), fx.SubmitAttempts)
    stage.rows(listener, Row(sub.roles[0].slot, LT, 0, 1, "x", end=END))
    stage.wait(15)
    (sub,) = of_kind(stage.append(slot, "b", segment_end=True), fx.SubmitAttempts)
    effects = stage.do(ev.AttemptEnded(link=listener, slot=sub.roles[0].slot, terminal=FULL))
    assert not of_kind(effects, fx.EndRequest), of_kind(effects, fx.EndRequest)


def test_a_join_may_be_done_while_its_conversation_waits_for_a_turn() -> None:
    stage = CoreStage(mesh=parse_mesh(DUET))
    enc, _ = stage.replica("encoder", units=2)
    painter, _ = stage.replica("painter")
    slot, _ = stage.converse(make_request("duet"))
    for text in "abc":  # The companion is owed the last one, so the turn is kept.
        stage.append(slot, text)
    stage.rows(enc, Row(1, lane_of(0, 0, Modality.TENSOR), 0, 1, end=END))
    credit = Grant(2, REQUEST_SOURCE, 9, 1 << 21)
    stage.do(ev.InputCreditGranted(link=enc, grants=[credit]))
    other, effects = stage.open(make_request("duet"))
    assert of_kind(effects, fx.SubmitAttempts), "it has the turn now"
    stage.rows(enc, Row(2, lane_of(0, 1, Modality.TENSOR), 0, 1, end=END))
    assert not of_kind(stage.wait(3), fx.EndRequest)
    effects = stage.do(ev.AbortAsked(link=1, slot=other, cause="asked")) + stage.wait(2)
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert submit.link == painter


def test_after_a_pause_who_waits_for_slots_of_its_own_readers_is_given_up_in_time() -> None:
    stage = CoreStage(CoreSettings(redrive_s=5.0), mesh=parse_mesh(CHAIN))
    shared, _ = stage.replica("shared", ResumeContract.TOKENS, slots=2)
    stage.open(make_request("chain"))
    stage.open(make_request("chain"))
    for slot in (1, 2):
        stage.rows(shared, Row(slot, LT, 0, 1, "a", [7]))
    for slot in (1, 2):
        stage.do(ev.AttemptUnknown(link=shared, slot=slot))
    stage.wait(1)
    stage.report(shared, WorkerState.PAUSED, KEPT)
    stage.wait(6)
    effects = stage.report(shared)
    for _ in range(20):
        effects += stage.wait(1)
    assert of_kind(effects, fx.AbortAttempt), "both wait until their deadlines"


def test_partials_of_a_second_run_stand_where_they_belong() -> None:
    stage = CoreStage()
    listener, _ = stage.replica("listener")
    mixer, _ = stage.replica("mixer")
    slot, _ = stage.converse(make_request("turns"))
    stage.append(slot, "a", segment_end=True)
    stage.rows(listener, Row(1, LT, 0, 1, "x", end=END))
    stage.rows(mixer, Row(1, MT, 0, 1, "A"), Row(1, MT, 1, 1, "B", end=END))
    stage.append(slot, "b", segment_end=True)
    stage.rows(listener, Row(2, LT, 0, 1, "y", end=END))
    stage.rows(mixer, Row(2, MT, 0, 1, "C"))
    stage.do(ev.AbortAsked(link=1, slot=slot, cause="asked", partials=True))
    effects = stage.rows(mixer, *(Row(2, MT, 1 + at, 1, t) for at, t in enumerate("DEFG")))
    given = [(r.pos, r.text) for s in of_kind(effects, fx.SendRows) for r in s.rows]
    assert given == [(3, "D"), (4, "E"), (5, "F"), (6, "G")], given


def test_control_calls_are_counted_and_not_their_replicas() -> None:
    stage = CoreStage(CoreSettings(controls_max=2))
    for _ in range(3):
        stage.replica("thinker")
    ask(stage, Pause(mode=PauseMode.WAIT), 1)
    assert not of_kind(ask(stage, Resume(), 2), fx.AnswerControl)


def test_one_replica_that_cannot_pause_does_not_undo_what_others_did() -> None:
    stage = CoreStage()
    busy, quick = stage.replica("thinker")[0], stage.replica("thinker")[0]
    orders = of_kind(ask(stage, Pause(mode=PauseMode.WAIT)), fx.AskWorker)
    gate = Gate(paused=PauseMode.WAIT)
    stage.report(busy, WorkerState.PAUSED, gate)
    stage.report(quick, WorkerState.PAUSED, gate)
    stage.carried_out(orders[1])
    stage.carried_out(orders[0], "deadline_exceeded")
    stage.report(busy)  # It could not begin in time, so its gate is open again.
    stage.lose(quick)
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker), "the new incarnation is not paused"


def test_conversations_outlive_what_another_owner_left() -> None:
    stage = CoreStage(mirrors=True)
    stage.replica("listener")
    slot, _ = stage.converse(make_request("listen"))
    stage.append(slot, "a")
    for _ in range(2):
        _, effects = stage.open(make_request("listen", TextPart("x" * 15_000)), epoch=2)
        assert not of_kind(effects, fx.EndRequest)
    effects = stage.append(slot, "b")
    assert not of_kind(effects, fx.AbortAttempt), (
        "a conversation of a few bytes is ended: input_log_full"
    )


def test_no_more_of_a_tenant_is_held_than_may_wait() -> None:
    stage = CoreStage()
    for pool in ("thinker", "coder", "mixer"):
        link, _ = stage.replica(pool)
        if pool == "thinker":
            stage.report(link, WorkerState.PAUSED, KEPT)
    ended = [of_kind(stage.open(make_request("rejoin"))[1], fx.EndRequest) for _ in range(5)]
    assert [bool(e) for e in ended] == [False, False, False, True, True], "tenant_waiting_max is 3"


def test_what_is_frozen_and_drained_has_not_stalled() -> None:
    stage = CoreStage()
    link, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.report(link, WorkerState.PAUSED, KEPT)
    stage.report(link, WorkerState.DRAINING, Gate(paused=PauseMode.KEEP, drained=True))
    effects = stage.wait(15) + stage.wait(20)
    assert not of_kind(effects, fx.AbortAttempt), of_kind(effects, fx.AbortAttempt)


def test_who_has_just_been_resumed_has_not_stalled() -> None:
    stage = CoreStage()
    link, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.wait(0.1)
    stage.report(link, WorkerState.PAUSED, KEPT)
    stage.wait(29.7)
    stage.report(link)
    effects = stage.wait(0.3)
    assert not of_kind(effects, fx.AbortAttempt), of_kind(effects, fx.AbortAttempt)


def test_every_run_is_sent_what_it_reads_whole() -> None:
    mesh = parse_mesh(PREFIXED)
    stage = CoreStage(mesh=mesh)
    thinker, _ = stage.replica("thinker")
    listener, _ = stage.replica("listener")
    slot, _ = stage.converse(make_request("prefixed"))
    stage.rows(thinker, Row(1, LT, 0, 1, "p", end=END))
    lane = lane_of(1, 0, Modality.TEXT)
    seen = []
    for run in (1, 2):
        effects = stage.append(slot, "a", segment_end=True)
        seen.append([r.text for s in of_kind(effects, fx.SendRows) for r in s.rows if r.lane == LT])
        stage.do(ev.InputCreditGranted(link=listener, grants=[Grant(run, LT, 99, 1 << 21)]))
        stage.rows(listener, Row(run, lane, 0, 1, "x", end=END))
    assert seen == [["p"], ["p"]], seen


def test_what_every_run_reads_is_there_though_the_journal_was_given_up() -> None:
    stage = CoreStage(CoreSettings(journal_bytes_max=500), mesh=parse_mesh(SPOKEN))
    thinker, _ = stage.replica("thinker")
    listener, _ = stage.replica("listener")
    stage.replica("reader")
    slot, effects = stage.converse(make_request("spoken"))
    stages = {one.stage: one.roles[0].slot for one in of_kind(effects, fx.SubmitAttempts)}
    names = [one.name for one in parse_mesh(SPOKEN).pipelines["spoken"].stages]
    prefix, talker = stages[names.index("prefix")], stages[names.index("talker")]
    told = lane_of(names.index("prefix"), 0, Modality.TEXT)
    said = lane_of(names.index("talker"), 0, Modality.TEXT)
    stage.rows(thinker, Row(prefix, told, 0, 1, "p", end=END))
    for at in range(3):  # The reader is sent it, and it would be kept for another.
        effects = stage.rows(thinker, Row(talker, said, at, 1, "x" * 300))
        assert not of_kind(effects, fx.EndRequest)
    heard = lane_of(names.index("listener"), 0, Modality.TEXT)
    effects = stage.append(slot, "a", segment_end=True)
    (run,) = of_kind(effects, fx.SubmitAttempts)
    stage.rows(listener, Row(run.roles[0].slot, heard, 0, 1, "y", end=END))
    effects = stage.append(slot, "b", segment_end=True)
    rows = [row for sent in of_kind(effects, fx.SendRows) for row in sent.rows]
    assert [row.text for row in rows if row.lane == told] == ["p"]


def test_who_waits_for_an_engine_slot_does_not_keep_who_has_it_from_going_on() -> None:
    stage = CoreStage()  # listen: running_max 2
    stage.replica("listener", slots=2)
    slots = [stage.converse(make_request("listen"))[0] for _ in range(2)]
    for slot in slots:
        stage.append(slot, "a")
    later = [stage.converse(make_request("listen"))[0] for _ in range(2)]
    for slot in later:
        stage.append(slot, "b")
    effects = stage.append(slots[0], end=True)
    for _ in range(30):
        effects += stage.wait(1)
    assert of_kind(effects, fx.SendRows), (
        "the first two hold the engine slots, the others the turns"
    )


def test_a_burst_of_plain_requests_does_not_stop_a_conversation_for_good() -> None:
    stage = CoreStage()  # listen: running_max 2
    stage.replica("listener", slots=1)
    talk, _ = stage.converse(make_request("listen"))
    stage.append(talk, "a")
    for _ in range(2):
        stage.open(make_request("listen"))
    effects = stage.append(talk, end=True)
    for _ in range(30):
        effects += stage.wait(1)
    assert of_kind(effects, fx.SendRows), "the conversation has the slot, the others the turns"


def test_a_prompt_is_answered_though_its_request_is_aborted() -> None:
    stage = CoreStage()
    stage.do(
        ev.ReplicaAttached(
            link=50,
            pool="thinker",
            replica_id="t",
            incarnation=1,
            card=WorkerCard(slots=4, interactions=True),
            state=WorkerState.READY,
            window_units=64,
            window_bytes=1 << 20,
        )
    )
    slot, _ = stage.open(make_request("echo"))
    stage.do(ev.InteractAsked(link=1, slot=slot, interaction_id="p", text="x"))
    effects = stage.do(ev.AbortAsked(link=1, slot=slot, cause="asked")) + stage.wait(2)
    assert of_kind(effects, fx.EndRequest)
    assert of_kind(effects, fx.AnswerInteraction)


def test_who_needs_a_closed_pool_no_more_is_not_held() -> None:
    stage = CoreStage(mirrors=True)
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.replica("talker", ResumeContract.REPLAY)
    stage.report(thinker, WorkerState.PAUSED, KEPT)
    lane = LaneJournal(
        lane=LT, next=1, ids=[1], end=END, rows=[Row(0, LT, 0, 1, "a", [1], end=END)]
    )
    _, effects = stage.open(make_request("talk"), epoch=2, lanes=[lane])
    assert of_kind(effects, fx.SubmitAttempts), "the talker waits for the thinker's pool"
