"""What the random tests of the orchestrator's core draw from."""

from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import WorkerCard
from services.orchestrator.core.settings import CoreSettings
from stagemesh.media import Body, MediaPart, Modality, Part, TextPart
from stagemesh.outcome import End, ErrorCode, ErrorInfo, FinishReason, Outcome, Terminal

__all__ = [
    "BROKEN", "CARDS", "EARLY", "END", "LATE", "MODELS", "POOLS", "REFUSED", "SETTINGS", "SPOKEN",
    "STOPPED", "WRITTEN",
]  # fmt: skip

SETTINGS = CoreSettings(
    window_units=4,
    window_bytes=32,
    journal_bytes_max=48,
    tombstones_max=8,
    recent_max=4,
    redrive_s=2.0,
    stall_s=5.0,
    slow_s=5.0,
    tombstone_s=3.0,
    lease_s=3.0,
    release_grace_s=2.0,
    orchestrators=2,
)
CARDS = [
    WorkerCard(resume_contract=contract, deterministic=deterministic, interactions=True)
    for contract in ResumeContract
    for deterministic in ((True, False) if contract is ResumeContract.REPLAY else (True,))
]
POOLS = ("thinker", "thinker", "coder", "talker", "encoder", "painter", "listener", "mixer")
WRITTEN: tuple[Part, ...] = (TextPart("hi"),)
SPOKEN: tuple[Part, ...] = (MediaPart(modality=Modality.AUDIO, body=Body(inline=b"x")),)
TEXT, AUDIO = (Modality.TEXT,), (Modality.AUDIO,)
# What a model takes, what may be asked of it, and whether it gives several choices.
MODELS: dict[str, tuple[list[tuple[Part, ...]], list[tuple[Modality, ...]], bool]] = {
    "echo": ([WRITTEN], [()], True),
    "talk": ([WRITTEN], [(), TEXT, AUDIO], True),
    "relay3": ([WRITTEN], [(), AUDIO], True),
    "paint": ([WRITTEN], [()], True),
    "hear": ([WRITTEN, SPOKEN], [()], True),
    "twice": ([WRITTEN], [()], False),
    "rejoin": ([WRITTEN], [()], False),
    "pair": ([WRITTEN], [()], True),
}
REFUSED = Terminal(
    outcome=Outcome.REJECTED,
    error=ErrorInfo(code=ErrorCode.OVERLOADED, reason="no_slot", message="full"),
)
BROKEN = Terminal(
    outcome=Outcome.FAILED,
    error=ErrorInfo(code=ErrorCode.ENGINE_ERROR, reason="engine_error", message="broken"),
)
STOPPED = Terminal(outcome=Outcome.CANCELLED)
EARLY = Terminal(outcome=Outcome.COMPLETED)
LATE = Terminal(outcome=Outcome.DEADLINE_EXCEEDED)
END = End(finish_reason=FinishReason.STOP)
