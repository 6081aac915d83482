"""What a stage engine must do, and what it may assume.

An engine runs attempts. It gets each attempt's input as the plain values below, made by the stage's
bridge, and gives back one list of pieces for each of its own steps. It knows neither the link, nor
positions, credit or handles; the worker adds those.

Rules: no method blocks the event loop (loading and stepping run in a thread or a process); every
submitted attempt gets exactly one last piece for each modality it was asked for (`end` set), or one
piece with `error`; an aborted attempt gets one piece with `error.code == ABORTED`, or its ends if
they were under way, at most one engine step later. A piece with `error` may carry an `end` beside
it, whose usage then counts. Control calls come one at a time, beside attempts, and only those that
`Capabilities.control` names.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from stagemesh.control import Answer, Call, ControlSupport
from stagemesh.media import Body, Message, Modality, OutputKind, Params
from stagemesh.outcome import End, ErrorInfo

__all__ = [
    "AudioInput",
    "Capabilities",
    "ChatInput",
    "Engine",
    "EngineConfig",
    "EngineInput",
    "Interaction",
    "InteractiveEngine",
    "LoadReport",
    "ModelCard",
    "Piece",
    "Resume",
    "ResumeContract",
    "TensorsInput",
    "TextInput",
    "Work",
]


class ResumeContract(IntEnum):
    """How a lost attempt may be continued: the same numbers as in `link.proto`."""

    TOKENS = 1
    PER_INPUT = 2
    REPLAY = 3
    RESTART = 4
    NONE = 5


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do; fixed once it is loaded."""

    input_modalities: frozenset[Modality]
    output_modalities: frozenset[Modality]
    stream_input: bool
    stream_output: bool
    resume_contract: ResumeContract
    deterministic: bool
    slots: int
    """How many attempts it runs at once; it is never given more."""
    context_tokens_max: int = 0
    control: ControlSupport = ControlSupport()
    """Which control calls it carries out."""
    params: frozenset[str] = frozenset()
    """The fields of `Params` that it minds, as in `sampling.temperature`; none means: not told.

    What it does not mind is refused where a client asks for it at this very stage.
    """
    interactions: bool = False
    """Whether its attempts take another prompt; then it is an `InteractiveEngine`."""
    paces_input: bool = False
    """Whether it tells, by `Piece.taken`, when it takes what was appended; then a source may run
    ahead of it by a window only. Of an engine that does not, all is taken once it is appended."""


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is loaded: its name, and the digest of its weights (empty where there are none)."""

    model: str
    digest: str = ""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the mesh file says about the pool, with the names that an engine may need for logs."""

    pool: str
    replica_id: str
    model: str
    options: Mapping[str, Any] = {}


class ChatInput(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation; the engine applies its own chat template and tokenizer."""

    messages: tuple[Message, ...]


class TextInput(msgspec.Struct, frozen=True, kw_only=True):
    """Some text; for an engine that streams its input, one piece of it."""

    text: str
    units: int = 0
    """How many units of the source it covers; 0 where it came with the request."""
    origin: tuple[int, int] | None = None
    """The units of the source, `[start, end)`, from which a bridge would make it again; None where
    it came with the request, or from more than one source."""


class AudioInput(msgspec.Struct, frozen=True, kw_only=True):
    """An audio file or raw samples, undecoded; `param` is the client's name of the field."""

    data: bytes
    media_type: str
    sample_rate_hz: int = 0
    channels: int = 1
    param: str = ""


class TensorsInput(msgspec.Struct, frozen=True, kw_only=True):
    """Named tensors as safetensors buffers: the stage's own under "", a companion's under its."""

    buffers: Mapping[str, bytes]
    text: str = ""


EngineInput = ChatInput | TextInput | AudioInput | TensorsInput


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt goes on that was begun elsewhere; only engines of two contracts get one.

    `TOKENS`: the engine goes on after `token_ids`, which count as its own output for limits,
    penalties, stop strings and usage. It gives no text again that was certain after them, and ends
    at once if they end the answer. `PER_INPUT`: the first input is the first that is not wholly
    delivered, and the outputs before it count for usage. With `REPLAY` an engine begins again, and
    the worker drops what was delivered.
    """

    contract: ResumeContract
    positions: Mapping[Modality, int]
    """Where the next output of each modality stands, in the units of its lane."""
    token_ids: tuple[int, ...] = ()


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the prompt, and the first position of the outputs that were made under it."""

    interaction_id: str
    text: str
    applied_at: int


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, as an engine gets it.

    `attempt` is the worker's own number for it, unique in the process. `seed` already includes the
    choice. `streamed` means that more input comes by `append`, until `close_input`. `resume` is
    None where the engine begins at the beginning.
    """

    attempt: int
    request_id: str
    stage: str
    companion: str
    choice: int
    seed: int
    seed_explicit: bool
    params: Params
    wanted: frozenset[Modality]
    ids_wanted: bool
    input: EngineInput
    streamed: bool = False
    resume: Resume | None = None
    adapter: str = ""
    """The LoRA adapter that the client asked for; empty for the model as it is."""
    interactions: tuple[Interaction, ...] = ()
    """Changes of the prompt that an earlier attempt took: they apply again where they did."""


class Piece(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of an attempt's result.

    `units` counts tokens for token text (with `ids`), characters for other text, samples of one
    channel for audio, items else. `end` closes the modality's lane; `error` ends the whole attempt.
    `origin` is that of the one input that it was made of, where the contract is `PER_INPUT`.
    `taken` says that the engine has taken so many more of the inputs that were appended, in their
    order, whether or not anything comes of them; such a piece carries nothing else.
    """

    attempt: int
    modality: Modality = Modality.TEXT
    units: int = 0
    text: str = ""
    ids: list[int] | None = None
    kind: OutputKind = OutputKind.TEXT
    body: Body | None = None
    end: End | None = None
    error: ErrorInfo | None = None
    origin: tuple[int, int] | None = None
    taken: int = 0


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """How busy an engine is; `steps` grows with every engine step."""

    running: int
    waiting: int
    steps: int


class Engine(Protocol):
    """One model on one device."""

    async def load(self, progress: Callable[[str], None]) -> ModelCard:
        """Load the model and answer one warm-up; `progress` takes lines for an operator."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; valid after `load`."""
        ...

    def submit(self, work: Work) -> None:
        """Start an attempt.

        Raises:
            MeshError: If its input cannot be served (too long, undecodable, unsupported).
        """
        ...

    def append(self, attempt: int, piece: EngineInput) -> None:
        """Give a streamed attempt its next input."""
        ...

    def close_input(self, attempt: int) -> None:
        """Tell a streamed attempt that its input is complete."""
        ...

    def abort(self, attempt: int) -> None:
        """Stop an attempt between two engine steps; unknown ones are ignored."""
        ...

    def outputs(self) -> AsyncIterator[list[Piece]]:
        """Yield what each engine step gave, until `close`. Raises if the engine is broken."""
        ...

    async def control(self, call: Call) -> Answer:
        """Carry out a control call; nothing runs when it is told to sleep.

        `Pause` means that attempts stand still until `Resume`: they give no pieces, except that
        aborts are answered as ever. Given tags are never those that are asleep, or awake, already.

        Raises:
            MeshError: If it could not be carried out; then nothing has changed.
        """
        ...

    def load_report(self) -> LoadReport:
        """Tell how busy it is."""
        ...

    async def close(self) -> None:
        """Stop everything, child processes included."""
        ...


@runtime_checkable
class InteractiveEngine(Engine, Protocol):
    """An engine that takes another prompt for what it is making."""

    def interact(self, attempt: int, text: str) -> int:
        """Give a running attempt another prompt.

        Returns the first position of its outputs, in the units of its lane, that is made under it:
        nothing from there on was given yet. The same changes at the same positions give the same
        outputs, if the engine is deterministic.

        Raises:
            MeshError: If the attempt cannot take it, or is over; it goes on as before.
        """
        ...
