"""Runs real engines in tests: works with defaults, and what each attempt gave."""

import asyncio
import importlib.util
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from services.stage_worker.engines.base import (
    AudioInput,
    ChatInput,
    Engine,
    EngineInput,
    Piece,
    Work,
)
from services.stage_worker.engines.support.weights import WeightsError, locate
from stagemesh.media import Message, Modality, Params, Sampling, TextPart
from stagemesh.outcome import End, ErrorInfo

__all__ = [
    "ANSWER_S",
    "MODEL_MARKS",
    "Collector",
    "Vocabulary",
    "chat",
    "collecting",
    "lacks",
    "make_work",
    "recording",
]

ANSWER_S: Final = 60.0

MODEL_MARKS: Final = (
    pytest.mark.models,
    pytest.mark.timeout(300),
    # Model libraries warn of much that is theirs to mend.
    pytest.mark.filterwarnings("default"),
)


def recording(times: int = 1) -> AudioInput:
    """Give "Good morning. The meeting starts at ten.", made once by the `piper` engine."""
    data = (Path(__file__).parents[1] / "data" / "good_morning.mp3").read_bytes()
    return AudioInput(data=data * times, media_type="audio/mpeg", param="file")


def chat(text: str) -> ChatInput:
    """Ask one question."""
    return ChatInput(messages=(Message(role="user", parts=(TextPart(text),)),))


def make_work(
    attempt: int,
    given: EngineInput,
    *,
    wanted: Modality = Modality.TEXT,
    params: Params | None = None,
    sampling: Sampling | None = None,
    seed: int = 7,
    seed_explicit: bool = False,
    streamed: bool = False,
    adapter: str = "",
) -> Work:
    """Make an attempt with the values that a test does not care for."""
    return Work(
        attempt=attempt,
        request_id=f"req_{attempt}",
        stage="stage",
        companion="",
        choice=0,
        seed=seed,
        seed_explicit=seed_explicit,
        params=params or Params(sampling=sampling or Sampling()),
        wanted=frozenset({wanted}),
        ids_wanted=False,
        input=given,
        streamed=streamed,
        adapter=adapter,
    )


def lacks(name: str, fmt: str, *packages: str) -> str:
    """Say what is missing for an engine, or nothing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed in this profile"
    try:
        locate(name, fmt)
    except WeightsError as error:
        return str(error)
    return ""


class Vocabulary:
    """The tokens of a language model; read from its folder when they are first needed."""

    def __init__(self, name: str, fmt: str) -> None:
        self._name, self._fmt = name, fmt

    @cached_property
    def _tokenizer(self) -> Any:
        # Only the environments that run such models have it.
        tokenizers = importlib.import_module("tokenizers")
        path = locate(self._name, self._fmt).path / "tokenizer.json"
        return tokenizers.Tokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def told(self, ids: Sequence[int]) -> str:
        """Give the text that is certain after these ids, one after the other."""
        decoders = importlib.import_module("tokenizers.decoders")
        stream = decoders.DecodeStream(skip_special_tokens=True)
        return "".join(stream.step(self._tokenizer, id_) or "" for id_ in ids)


class Collector:
    """Reads an engine's steps, sorted by attempt."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pieces: dict[int, list[Piece]] = defaultdict(list)
        self._numbers = iter(range(1, 1_000_000))
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for step in self.engine.outputs():
                for piece in step:
                    self.pieces[piece.attempt].append(piece)
                self._changed.set()
        finally:
            self._changed.set()

    def start(self, given: EngineInput, **values: object) -> int:
        """Submit an attempt; give its number."""
        number = next(self._numbers)
        self.engine.submit(make_work(number, given, **values))  # type: ignore[arg-type]
        return number

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, or fail as the engine did."""
        async with asyncio.timeout(ANSWER_S):
            while not holds():
                if self._reader.done():
                    self._reader.result()
                    raise AssertionError("the engine ended its outputs")
                self._changed.clear()
                await self._changed.wait()

    async def until_over(self, *numbers: int) -> None:
        """Wait for the last pieces of attempts."""
        await self.until(lambda: all(self.last(number) is not None for number in numbers))

    async def until_broken(self) -> BaseException:
        """Wait until the engine says that it is broken; give how."""
        async with asyncio.timeout(ANSWER_S):
            await asyncio.wait({self._reader})
        error = self._reader.exception()
        assert error is not None
        return error

    async def until_closed(self) -> None:
        """Wait until the engine has ended its outputs."""
        async with asyncio.timeout(ANSWER_S):
            await self._reader

    async def run(self, given: EngineInput, **values: object) -> int:
        """Submit an attempt and wait for its end; give its number."""
        number = self.start(given, **values)
        await self.until_over(number)
        return number

    def last(self, number: int) -> Piece | None:
        """Give the piece that ended an attempt."""
        lasts = [piece for piece in self.pieces[number] if piece.end or piece.error]
        assert len(lasts) < 2, lasts
        assert not lasts or self.pieces[number][-1] is lasts[0]
        return lasts[0] if lasts else None

    def end(self, number: int) -> End:
        """Give the end of an attempt that had no error."""
        last = self.last(number)
        assert last is not None
        assert last.error is None, last.error
        assert last.end is not None
        return last.end

    def error(self, number: int) -> ErrorInfo:
        """Give the error of an attempt that failed."""
        last = self.last(number)
        assert last is not None
        assert last.error is not None
        return last.error

    def text(self, number: int) -> str:
        """Give the text of an attempt."""
        return "".join(piece.text for piece in self.pieces[number])

    def data(self, number: int) -> bytes:
        """Give the bytes of an attempt."""
        return b"".join(piece.body.inline for piece in self.pieces[number] if piece.body)


@asynccontextmanager
async def collecting(engine: Engine, *, load_s: float = 60.0) -> AsyncIterator[Collector]:
    """Load an engine, read it, and close it at the end."""
    try:
        async with asyncio.timeout(load_s):
            await engine.load(lambda line: None)
        collector = Collector(engine)
        yield collector
    finally:
        await engine.close()
    if not collector._reader.done():
        await collector.until_closed()
