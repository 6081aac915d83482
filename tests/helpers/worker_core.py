"""Builders for tests of the stage worker's core, and a core that is ready."""

from collections.abc import Sequence
from typing import TypeVar

from services.stage_worker.core import Identity, Limits, RoleSpec, Source, StageWorker, Submission
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.link.core import LaneJournal
from stagemesh.media import Message, Modality, Params, Request, TextPart, lane_of
from stagemesh.outcome import End, ErrorCode, FinishReason, Outcome, Usage

__all__ = [
    "END",
    "LINK",
    "STAGE",
    "TEXT_LANE",
    "Stepped",
    "of_kind",
    "submission",
    "terminal_of",
    "text_piece",
]

LINK = 1
STAGE = 1
TEXT_LANE = lane_of(STAGE, 0, Modality.TEXT)
END = End(finish_reason=FinishReason.STOP, usage=Usage(prompt_tokens=2, completion_tokens=1))

E = TypeVar("E", bound=do.Effect)


def submission(
    *,
    request_id: str = "req_a",
    epoch: int = 1,
    attempt: int = 1,
    slots: tuple[int, ...] = (1,),
    modalities: tuple[Modality, ...] = (Modality.TEXT,),
    sources: tuple[Source, ...] = (),
    deadline_left_s: float = 0.0,
    choices: int | None = None,
    text: str = "hello",
    token_ids: bool = False,
    contract: ResumeContract | None = None,
    resume: Sequence[LaneJournal] = (),
) -> Submission:
    """Make a submission with one choice for each slot."""
    return Submission(
        request_id=request_id,
        epoch=epoch,
        attempt=attempt,
        stage=STAGE,
        stage_name="thinker",
        roles=tuple(
            RoleSpec(
                slot=slot,
                role=role,
                companion="",
                lanes=tuple(lane_of(STAGE, role, modality) for modality in modalities),
                token_ids=token_ids,
            )
            for role, slot in enumerate(slots)
        ),
        sources=sources,
        deadline_left_s=deadline_left_s,
        request=Request(
            model="m",
            messages=(Message(role="user", parts=(TextPart(text),)),),
            choices=choices or len(slots),
        ),
        params=Params(),
        bridge="script",
        bridge_options={},
        contract=contract,
        resume={lane.lane: lane for lane in resume},
    )


def text_piece(attempt: int, text: str = " x", *, units: int = 1, end: End | None = None) -> Piece:
    """Make a piece of text."""
    return Piece(attempt=attempt, units=units, text=text, end=end)


def of_kind(effects: list[do.Effect], kind: type[E]) -> list[E]:
    """Pick the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def terminal_of(effects: list[do.Effect]) -> tuple[Outcome, ErrorCode]:
    """Give outcome and code of the one terminal among the effects."""
    (order,) = of_kind(effects, do.SendTerminal)
    assert order.terminal.error is not None
    return order.terminal.outcome, order.terminal.error.code


class Stepped:
    """A ready core with one link, stepped by hand; started attempts are in the engine at once."""

    def __init__(
        self,
        *,
        slots: int = 4,
        limits: Limits | None = None,
        window: tuple[int, int] = (64, 1 << 20),
        contract: ResumeContract = ResumeContract.REPLAY,
    ) -> None:
        self.core = StageWorker(Identity(pool="pool", replica_id="replica-0"), limits)
        self.now_s = 100.0
        self.contract = contract
        self.step(seen.EngineLoaded(slots=slots, contract=contract))
        self.step(seen.LinkAttached(link=LINK, window_units=window[0], window_bytes=window[1]))

    def step(self, event: seen.Event) -> list[do.Effect]:
        """Step one event."""
        return self.core.step(event, self.now_s)

    def submit(self, given: Submission) -> list[do.Effect]:
        """Submit, and start nothing."""
        return self.step(seen.Submitted(link=LINK, submission=given))

    def start(self, given: Submission | None = None) -> list[int]:
        """Submit, and let the engine take what was accepted; give the attempts' numbers."""
        started = of_kind(self.submit(given or submission()), do.StartAttempt)
        for order in started:
            self.step(seen.AttemptStarted(attempt=order.attempt))
            self.step(seen.InputClosed(attempt=order.attempt))
        return [order.attempt for order in started]

    def pieces(self, *pieces: Piece) -> list[do.Effect]:
        """Let the engine make a step."""
        return self.step(seen.PiecesMade(pieces=list(pieces)))
