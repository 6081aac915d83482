"""One synthetic attempt: how many units it may give, and what each step of it gives."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec import structs

from services.stage_worker.engines.base import (
    AudioInput,
    ChatInput,
    EngineInput,
    Piece,
    Resume,
    TextInput,
    Work,
)
from services.stage_worker.engines.support.stop_strings import StopFinder
from services.stage_worker.engines.support.synthetic_media import (
    SAMPLE_RATE_HZ,
    binary,
    colour_of,
    png,
    samples,
)
from services.stage_worker.engines.support.synthetic_script import (
    read_script,
    split_tokens,
    word,
)
from stagemesh.errors import unsupported
from stagemesh.media import AUDIO_PCM, IMAGE_PNG, Body, Modality
from stagemesh.outcome import End, FinishReason, Usage

__all__ = ["UNIT_MS", "Run"]

UNIT_MS: Final = 20
"""How long the audio of one unit is, unless the script says how long all of it is."""

_UNIT_SAMPLES: Final = SAMPLE_RATE_HZ * UNIT_MS // 1000
_TOKENS_DEFAULT: Final = 8
"""What answers an empty text, so that there always is something to see."""
_IMAGE_PX_DEFAULT: Final = 64
_TENSOR_BYTES_DEFAULT: Final = 1024
_BYTES: Final = "application/octet-stream"
_OF_TOKENS: Final = frozenset({Modality.TENSOR, Modality.TEXT})
"""What is made token by token, so that the most that may be drawn holds."""


class Run:
    """What an attempt gives, unit by unit.

    With all input there, its units are known: those of the script, or one for each word of the
    text. With streamed input each input unit allows one more, and relays the input's text unless
    the script has words of its own; what the script has beyond that comes once the input is closed.

    A run that goes on elsewhere begins with the unit after those that were delivered. `per_input`
    makes each piece of one input alone; a unit of audio then always has the same length.

    An input is taken once its units were given, or when no more will be.
    """

    __slots__ = (
        "_audio_at", "_changes", "_count", "_inputs", "_limit", "_modalities", "_per_input",
        "_prompt_tokens", "_received", "_relays", "_said", "_seed", "_stops", "_untaken", "_words",
        "closed", "done", "due_s", "fault_at", "made", "number", "scheduled", "script", "work",
    )  # fmt: skip

    def __init__(self, work: Work, now_s: float, *, per_input: bool = False) -> None:
        text, self.script = read_script(_text_of(work.input), work.stage, work.companion)
        self.work = work
        self.number = work.attempt
        self._modalities = tuple(sorted(work.wanted))
        script = self.script
        self.made = 0 if work.resume is None else _units_before(work.resume)
        self.fault_at = script.next_fault(self.made)
        self._seed = work.seed if script.seed is None else script.seed + work.choice
        self._prompt_tokens = len(split_tokens(text))
        self._words: list[str] | None = None
        self._count: int | None = None
        tokens_max = work.params.sampling.tokens_max
        self._limit = tokens_max if work.wanted & _OF_TOKENS else None
        self._stops = StopFinder(work.params.sampling.stop if Modality.TEXT in work.wanted else ())
        self._relays = work.streamed or _units_of(work.input) > 0
        if script.text is not None:
            self._words = split_tokens(script.text)
            self._count = len(self._words)
        elif script.tokens is not None:
            self._count = script.tokens
        elif not self._relays:
            self._words = split_tokens(text) if text.strip() else None
            self._count = len(self._words) if self._words else _TOKENS_DEFAULT
        self._per_input = per_input
        self._inputs: deque[tuple[int, tuple[int, int]]] = deque()
        # By its tokens it gets all input once more, by the input only what is not delivered.
        self._received = self.made if per_input else 0
        self._said = self._received
        self._untaken: deque[int] = deque()
        self._changes = [(one.applied_at, one.text) for one in work.interactions]
        self._audio_at = 0
        if work.resume is not None:
            self._audio_at = work.resume.positions.get(Modality.AUDIO, 0)
        self.done = False
        self.closed = not work.streamed
        self.scheduled = False
        self.due_s = now_s + script.first_ms / 1000
        if self._relays:
            if self._count is None:
                self._words = [""] * self._received
            self._allow(work.input)

    def append(self, piece: EngineInput) -> None:
        """Get one more streamed input; what came with the request allows nothing."""
        self._allow(piece)
        self._untaken.append(self._received)

    def take(self) -> Piece | None:
        """Tell how many more inputs are used up; None if there are none."""
        total, untaken, count = self._total(), self._untaken, 0
        useless = total is not None and self.made >= total
        while untaken and (useless or untaken[0] <= self.made):
            untaken.popleft()
            count += 1
        return Piece(attempt=self.number, taken=count) if count else None

    def _allow(self, piece: EngineInput) -> None:
        units = _units_of(piece)
        self._received += units
        if self._per_input and isinstance(piece, TextInput) and piece.origin is not None:
            self._inputs.append((self._received, piece.origin))
        if units and self._count is None and self._words is not None:
            text = _text_of(piece)
            known = len(self._words)
            self._words += (
                split_tokens(text, units) if text else map(word, range(known, known + units))
            )

    def change(self, text: str) -> int:
        """Take another prompt, which colours the frames from the next one on.

        Raises:
            MeshError: If it gives no video.
        """
        if Modality.VIDEO not in self._modalities:
            raise unsupported("only a video takes another prompt")
        self._changes.append((self.made, text))
        return self.made

    def close(self) -> None:
        """Note that no more input comes."""
        self.closed = True

    def ready(self) -> bool:
        """Whether it has something to give."""
        return not self.done and (self.made < self._allowed() or self._ends_at(self.made))

    def step_units(self) -> int:
        """How many units the next step gives: a batch, what is allowed, or up to a fault."""
        units = max(0, min(self.script.batch, self._allowed() - self.made))
        if self._inputs:
            while len(self._inputs) > 1 and self._inputs[0][0] <= self.made:
                self._inputs.popleft()
            if self._inputs[0][0] > self.made:
                units = min(units, self._inputs[0][0] - self.made)
        return units if self.fault_at is None else min(units, self.fault_at - self.made)

    def give(self, units: int) -> Iterator[Piece]:
        """Give the next units, and the ends if they are the last."""
        start = self.made
        text = self._say(units)
        units = self.made - start
        ends = self._ends_at(self.made) and self.fault_at != self.made
        self.done = ends or bool(self._stops.match)
        origin = self._inputs[0][1] if self._inputs else None
        for modality in self._modalities:
            for piece in self._lane(modality, start, units, text):
                yield piece if origin is None else structs.replace(piece, origin=origin)

    def ended_by(self, reason: FinishReason) -> End:
        """Make an end that says what was used so far."""
        return self._end(Modality.TEXT, reason)

    def _total(self) -> int | None:
        """How many units there are in all; None while streamed input decides it."""
        count = self._count
        if count is None and self.closed:
            count = self._received
        if self._limit is not None:
            if count is None:
                return self._limit if self._received >= self._limit else None
            return min(count, self._limit)
        return count

    def _allowed(self) -> int:
        total = self._total()
        if total is None:
            return self._received
        return total if self.closed else min(total, self._received)

    def _ends_at(self, made: int) -> bool:
        total = self._total()
        return total is not None and made >= total and (self.closed or made == self._limit)

    def _say(self, units: int) -> str:
        """Make the next units; give their text, as far as no stop string ends it."""
        start = self.made
        if Modality.TEXT not in self._modalities or not self.work.params.sampling.stop:
            self.made = start + units
            return self._text(start, units) if Modality.TEXT in self._modalities else ""
        said: list[str] = []
        for at in range(self._said, start + units):
            if self._stops.match:
                break
            text = self._stops.push(self._text(at, 1))
            self._said = at + 1
            if at >= start:  # What was delivered before may begin a stop string, and is not said.
                said.append(text)
                self.made = at + 1
        return "".join(said)

    def _lane(self, modality: Modality, start: int, units: int, text: str) -> Iterator[Piece]:
        end = self._end(modality) if self.done else None
        number = self.number
        match modality:
            case Modality.TEXT:
                ids = list(range(start, start + units)) if self.work.ids_wanted else None
                if end:
                    text += self._stops.flush()
                if units or end:
                    yield Piece(attempt=number, units=units, text=text, ids=ids, end=end)
            case Modality.AUDIO:
                yield from self._audio(start + units, end)
            case Modality.VIDEO:
                yield from self._frames(start, units, end)
            case _ if end is not None:
                yield Piece(
                    attempt=number, modality=modality, units=1, body=self._item(modality), end=end
                )

    def _text(self, start: int, units: int) -> str:
        words = self._words
        if units == 1:
            return word(start) if words is None else words[start]
        if words is not None:
            return "".join(words[start : start + units])
        return "".join(map(word, range(start, start + units)))

    def _audio(self, units: int, end: End | None) -> Iterator[Piece]:
        """Give the samples up to the end of unit `units - 1`."""
        start = self._audio_at
        stop = max(start, self._samples_upto(units, last=end is not None))
        self._audio_at = stop
        if end is not None:
            end = self._end(Modality.AUDIO)
        if stop == start and end is None:
            return
        body = Body(
            inline=samples(self._seed, start, stop - start),
            media_type=AUDIO_PCM,
            sample_rate_hz=SAMPLE_RATE_HZ,
        )
        yield Piece(
            attempt=self.number,
            modality=Modality.AUDIO,
            units=stop - start,
            body=body if stop > start else None,
            end=end,
        )

    def _samples_upto(self, units: int, *, last: bool) -> int:
        if self.script.audio_ms is None or self._per_input:
            return units * _UNIT_SAMPLES
        total = int(self.script.audio_ms * SAMPLE_RATE_HZ / 1000)
        count = self._total()
        if last or count == 0:
            return total
        return min(total, units * _UNIT_SAMPLES) if count is None else total * units // count

    def _frames(self, start: int, units: int, end: End | None) -> Iterator[Piece]:
        """Give one picture for each unit."""
        width, height = self._size_px()
        for frame in range(start, start + units):
            last = end if frame == start + units - 1 else None
            body = Body(
                inline=png(
                    width,
                    height,
                    colour_of(self._seed_of(frame), frame),
                    self.script.payload_bytes or 0,
                ),
                media_type=IMAGE_PNG,
                shape=(width, height),
            )
            yield Piece(attempt=self.number, modality=Modality.VIDEO, units=1, body=body, end=last)
        if not units and end is not None:
            yield Piece(attempt=self.number, modality=Modality.VIDEO, end=end)

    def _seed_of(self, frame: int) -> int:
        """Give the seed of a frame: each change of the prompt adds the sum of its bytes."""
        return self._seed + sum(sum(text.encode()) for at, text in self._changes if at <= frame)

    def _item(self, modality: Modality) -> Body:
        """Make the one image or tensor of the attempt."""
        size = self.script.payload_bytes
        if modality is Modality.IMAGE:
            width, height = self._size_px()
            data = png(width, height, colour_of(self._seed), size or 0)
            return Body(inline=data, media_type=IMAGE_PNG, shape=(width, height))
        data = binary(self._seed, _TENSOR_BYTES_DEFAULT if size is None else size)
        return Body(inline=data, media_type=_BYTES, shape=(len(data),), dtype="uint8")

    def _size_px(self) -> tuple[int, int]:
        wished = self.work.params.image
        side = self.script.image_px or _IMAGE_PX_DEFAULT
        if self.script.image_px is not None:
            return side, side
        return wished.width or side, wished.height or side

    def _end(self, modality: Modality, reason: FinishReason | None = None) -> End:
        match = self._stops.match if modality is Modality.TEXT else ""
        if match and reason is None:
            reason = FinishReason.STOP
        if reason is None:
            cut = modality in _OF_TOKENS and self._limit is not None
            beyond = self._count is None or (self._limit is not None and self._count > self._limit)
            cut = cut and self.made == self._limit and beyond
            reason = FinishReason.LENGTH if cut else self.script.finish_reason
        return End(
            finish_reason=reason,
            stop_match=match,
            usage=Usage(
                prompt_tokens=self._prompt_tokens,
                completion_tokens=self.made if modality is Modality.TEXT else 0,
                audio_output_samples=self._audio_at if modality is Modality.AUDIO else 0,
                images=1 if modality is Modality.IMAGE else 0,
            ),
        )


def _units_before(resume: Resume) -> int:
    """Tell how many units an attempt had given that goes on here."""
    positions = resume.positions
    if (units := positions.get(Modality.TEXT, positions.get(Modality.VIDEO))) is not None:
        return units
    return positions.get(Modality.AUDIO, 0) // _UNIT_SAMPLES


def _units_of(given: EngineInput) -> int:
    return given.units if isinstance(given, TextInput) else 0


def _text_of(given: EngineInput) -> str:
    match given:
        case ChatInput(messages=messages):
            return next((m.text for m in reversed(messages) if m.role == "user"), "")
        case AudioInput():
            return ""
        case _:
            return given.text
