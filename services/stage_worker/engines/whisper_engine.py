"""Speech to text: Whisper on CTranslate2, through faster-whisper.

Segments stream as they are heard.
"""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from faster_whisper import WhisperModel

from services.stage_worker.engines.base import (
    AudioInput,
    Capabilities,
    EngineConfig,
    ModelCard,
    Piece,
    ResumeContract,
)
from services.stage_worker.engines.support.job import Job
from services.stage_worker.engines.support.options import Count, Positive, read_options
from services.stage_worker.engines.support.sound import Samples, decode
from services.stage_worker.engines.support.threaded import Give, ThreadedEngine
from services.stage_worker.engines.support.weights import locate
from stagemesh.errors import unsupported
from stagemesh.media import Modality
from stagemesh.outcome import End, FinishReason, Usage

__all__ = ["Options", "WhisperEngine", "create"]

RATE_HZ = 16_000
"""What Whisper hears, whatever rate the audio came in."""

SHORTEST_S = 0.1
"""What is shorter holds no word, and the model would make one up."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mesh file may set under `options`; `threads` is for each attempt."""

    slots: Count = 2
    threads: Count = 1
    beam_size: Count = 1
    duration_s_max: Positive = 600.0
    compute_type: str = "int8"


def create(config: EngineConfig) -> "WhisperEngine":
    """Make the engine that the mesh file describes."""
    return WhisperEngine(config, read_options(config, Options))


class WhisperEngine(ThreadedEngine):
    """One Whisper model; one attempt is one piece of audio, in a thread of its own."""

    def __init__(self, config: EngineConfig, options: Options) -> None:
        super().__init__(config, slots=options.slots, threads=options.slots)
        self._options = options

    @property
    def capabilities(self) -> Capabilities:
        """Audio in, text out; the same audio gives the same text."""
        return Capabilities(
            input_modalities=frozenset({Modality.AUDIO}),
            output_modalities=frozenset({Modality.TEXT}),
            stream_input=False,
            stream_output=True,
            resume_contract=ResumeContract.REPLAY,
            deterministic=True,
            slots=self.slots,
            params=frozenset({"audio.language"}),
        )

    def load_model(self, progress: Callable[[str], None]) -> ModelCard:
        """Load the model and listen to a second of noise."""
        weights = locate(self.config.model, "ct2")
        progress(f"loading {weights.name}")
        self._model = WhisperModel(
            str(weights.path),
            device="auto",
            compute_type=self._options.compute_type,
            cpu_threads=self._options.threads,
            num_workers=self._options.slots,
        )
        noise = np.random.default_rng(0).normal(scale=0.1, size=RATE_HZ).astype(np.float32)
        list(self._transcribe(noise, None, only_speech=False))
        list(self._transcribe(noise, None, only_speech=True))
        return ModelCard(model=weights.name, digest=weights.digest)

    def run(self, jobs: list[Job], give: Give) -> None:
        """Transcribe one piece of audio; each segment is a step."""
        (job,) = jobs
        given = job.work.input
        if not isinstance(given, AudioInput):
            raise unsupported("this model hears audio only", reason="unsupported_modality")
        language = self._checked(job.work.params.audio.language)
        samples = decode(given, rate_hz=RATE_HZ, duration_s_max=self._options.duration_s_max)
        job.usage = Usage(audio_input_samples=len(samples))
        give([])
        attempt, first = job.work.attempt, True
        for text, ids in self._transcribe(samples, language, only_speech=True):
            said = text.lstrip() if first else text
            first = False
            job.usage = msgspec.structs.replace(
                job.usage, completion_tokens=job.usage.completion_tokens + len(ids)
            )
            wanted = ids if job.work.ids_wanted else None
            give([Piece(attempt=attempt, units=len(ids), text=said, ids=wanted)])
            if job.ended:
                return
        give([Piece(attempt=attempt, end=End(finish_reason=FinishReason.STOP, usage=job.usage))])

    def _checked(self, language: str | None) -> str | None:
        """Give the language to listen for; None lets a model that knows several find out."""
        known = self._model.supported_languages
        if language is not None and language.lower() not in known:
            some = ", ".join(sorted(known)[:10])
            raise unsupported(
                f"unknown language {language!r}; this model knows {some}", param="language"
            )
        if len(known) == 1:
            return str(known[0])
        return None if language is None else language.lower()

    def _transcribe(
        self, samples: Samples, language: str | None, *, only_speech: bool
    ) -> Iterator[tuple[str, list[int]]]:
        """Yield the text of each segment, and its tokens.

        Silence is cut out first, since Whisper hears sentences in it. Without higher temperatures
        to fall back to, nothing is drawn at random, and the time for a segment is bounded.
        """
        if len(samples) < SHORTEST_S * RATE_HZ:
            return
        segments, _ = self._model.transcribe(
            samples,
            language=language,
            beam_size=self._options.beam_size,
            temperature=0.0,
            without_timestamps=True,
            condition_on_previous_text=False,
            vad_filter=only_speech,
        )
        for segment in segments:
            yield segment.text, segment.tokens
