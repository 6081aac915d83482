"""What peers of an orchestrator's core must not do, and it must bear."""

# ruff: noqa: D102 -- a rule's name says what it does.

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import LoadReport, WorkerState
from stagemesh.link.core import Grant, Row, row_cost
from stagemesh.media import Message, Request, TextPart
from stagemesh.outcome import End, ErrorCode, ErrorInfo, FinishReason, Outcome, Terminal
from tests.helpers.core_world import World

__all__ = ["BROKEN", "END", "BadManners"]

T = TypeVar("T")
END = End(finish_reason=FinishReason.STOP)
BROKEN = Terminal(
    outcome=Outcome.FAILED,
    error=ErrorInfo(code=ErrorCode.ENGINE_ERROR, reason="engine_error", message="broken"),
)


class BadManners(RuleBasedStateMachine):
    """Rules for clients and workers that break the protocol."""

    world: World

    @precondition(lambda self: self.world.attempts)
    @rule(data=st.data(), shift=st.integers(-3, 3).filter(bool), ends=st.booleans())
    def give_out_of_order(self, data: st.DataObject, shift: int, ends: bool) -> None:
        attempt = self.pick(data, self.world.attempts)
        lane = self.pick(data, sorted(attempt.next))
        if attempt.contract is ResumeContract.PER_INPUT:
            return  # Until it has caught up, what is ahead may be right.
        row = Row(attempt.slot, lane, max(0, attempt.next[lane] + shift), 1, "?")
        if row.pos == attempt.next[lane]:
            return
        if lane in attempt.ended or row.pos < attempt.next[lane]:
            row.end = None
        elif ends and not attempt.aborted:
            row.end = END
        units, size = row_cost(row)
        attempt.sent_units += units  # What is repeated has used credit up, which comes back.
        attempt.sent_bytes += size
        self.world.step(ev.RowsArrived(link=attempt.link, rows=[row]))

    @rule(
        link=st.integers(0, 12), slot=st.integers(0, 12), lane=st.sampled_from([1, 2, 0xFFF00001])
    )
    def talk_of_the_unknown(self, link: int, slot: int, lane: int) -> None:
        replica = self.world.replicas.get(link)
        if replica is not None and slot in replica.attempts:
            return
        for event in (
            ev.RowsArrived(link=link, rows=[Row(slot, lane, 0, 1, "?", end=END)]),
            ev.AttemptEnded(link=link, slot=slot, terminal=BROKEN),
            ev.AttemptUnknown(link=link, slot=slot),
            ev.InputCreditGranted(link=link, grants=[Grant(slot, lane, 5, 5)]),
        ):
            self.world.step(event)

    @rule(link=st.integers(1_000_000, 1_000_001), slot=st.integers(0, 3))
    def talk_on_dead_links(self, link: int, slot: int) -> None:
        request = Request(model="echo", messages=(Message(role="user", parts=(TextPart("x"),)),))
        for event in (
            ev.Opened(
                link=link, slot=slot, request_id="x", epoch=1,
                deadline_left_s=1, request=request, body=None,
            ),
            ev.AbortAsked(link=link, slot=slot, cause=""),
            ev.CreditGranted(link=link, grants=[Grant(slot, 0, 5, 5)]),
            ev.HandleLost(link=link, slot=slot, handle_id="h"),
            ev.ClientLost(link=link),
            ev.ReplicaLost(link=link),
            ev.ReplicaReported(link=link, state=WorkerState.READY, load=LoadReport()),
        ):  # fmt: skip
            self.world.step(event)

    def pick(self, data: st.DataObject, among: list[T]) -> T:
        return among[data.draw(st.integers(0, len(among) - 1))]
