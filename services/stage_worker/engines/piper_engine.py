"""Text to speech: a Piper voice on onnxruntime, one clause after the other.

The voice's graph takes phoneme ids and gives 16-bit samples at the voice's own rate. Each clause is
one run, so the first audio is there after the first clause.
"""

import json
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import onnxruntime
from numpy.typing import NDArray

from services.stage_worker.engines.base import (
    Capabilities,
    EngineConfig,
    ModelCard,
    Piece,
    ResumeContract,
    TextInput,
    Work,
)
from services.stage_worker.engines.support.job import Job
from services.stage_worker.engines.support.options import Count, read_options
from services.stage_worker.engines.support.phonemes import phonemes
from services.stage_worker.engines.support.texts import text_of
from services.stage_worker.engines.support.threaded import Give, ThreadedEngine
from services.stage_worker.engines.support.weights import locate
from stagemesh.errors import unsupported
from stagemesh.media import AUDIO_PCM, INLINE_BYTES_MAX, SAMPLE_BYTES, Body, Modality
from stagemesh.outcome import End, FinishReason, Usage

__all__ = ["Options", "PiperEngine", "create", "cut_phonemes"]

START, END, PAD = "^", "$", "_"
PEAK = 0.9
PIECE_SAMPLES = INLINE_BYTES_MAX // (2 * SAMPLE_BYTES)
"""Samples of one piece: half of what may travel inline."""

RUN_SYMBOLS_MAX = 240
"""Phonemes of one run, about 15 s of speech: its memory grows with them, and no abort stops it."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mesh file may set under `options`; the scales are the voice's own names."""

    slots: Count = 4
    threads: Count = 1
    noise_scale: float = 0.667
    noise_w: float = 0.8
    voices: list[str] = []
    """Other names that this voice answers to."""


def create(config: EngineConfig) -> "PiperEngine":
    """Make the engine that the mesh file describes."""
    return PiperEngine(config, read_options(config, Options))


class PiperEngine(ThreadedEngine):
    """One Piper voice."""

    def __init__(self, config: EngineConfig, options: Options) -> None:
        # A streamed attempt keeps its thread while it waits for text.
        super().__init__(config, slots=options.slots, threads=options.slots)
        self._options = options

    @property
    def capabilities(self) -> Capabilities:
        """Text in, piece by piece; audio out."""
        return Capabilities(
            input_modalities=frozenset({Modality.TEXT}),
            output_modalities=frozenset({Modality.AUDIO}),
            stream_input=True,
            stream_output=True,
            resume_contract=ResumeContract.PER_INPUT,
            deterministic=not (self._options.noise_scale or self._options.noise_w),
            slots=self.slots,
            params=frozenset({"audio.speed", "audio.voice"}),
            paces_input=True,
        )

    def load_model(self, progress: Callable[[str], None]) -> ModelCard:
        """Load the voice and say one word."""
        weights = locate(self.config.model, "onnx")
        progress(f"loading the voice {weights.name}")
        graph = weights.path
        config = json.loads(graph.with_name(f"{graph.name}.json").read_text(encoding="utf-8"))
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = self._options.threads
        settings.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(graph), settings)
        self._ids: dict[str, list[int]] = config["phoneme_id_map"]
        self._rate_hz = int(config["audio"]["sample_rate"])
        self._voices = {weights.name, *self._options.voices}
        self._speak(phonemes("ready"), 1.0)
        return ModelCard(model=weights.name, digest=weights.digest)

    def accept(self, work: Work) -> None:
        """Refuse a voice that is not here."""
        voice = work.params.audio.voice
        if voice is not None and voice not in self._voices:
            known = ", ".join(sorted(self._voices))
            raise unsupported(f"no voice {voice!r}; there is {known}", param="voice")

    def run(self, jobs: list[Job], give: Give) -> None:
        """Speak each piece of text as it comes."""
        (job,) = jobs
        attempt, speed = job.work.attempt, job.work.params.audio.speed or 1.0
        resume = job.work.resume
        spoken = 0 if resume is None else resume.positions.get(Modality.AUDIO, 0)
        job.usage = Usage(audio_output_samples=spoken)
        for given in job.inputs():
            origin = given.origin if isinstance(given, TextInput) else None
            for said in cut_phonemes(phonemes(text_of(given, param="input"))):
                samples = self._speak(said, speed)
                spoken += len(samples)
                job.usage = Usage(audio_output_samples=spoken)
                give([self._piece(attempt, part, origin) for part in _cut(samples)])
                if job.ended:
                    return
        end = End(finish_reason=FinishReason.STOP, usage=job.usage)
        give([Piece(attempt=attempt, modality=Modality.AUDIO, end=end)])

    def _speak(self, said: str, speed: float) -> NDArray[np.int16]:
        if not any(symbol.isalpha() for symbol in said):
            return np.zeros(0, np.int16)
        ids = [*self._ids[START], *self._ids[PAD]]
        for symbol in said:
            if symbol in self._ids:
                ids += [*self._ids[symbol], *self._ids[PAD]]
        ids += self._ids[END]
        scales = [self._options.noise_scale, 1.0 / speed, self._options.noise_w]
        (audio, *_) = self._session.run(
            None,
            {
                "input": np.array([ids], np.int64),
                "input_lengths": np.array([len(ids)], np.int64),
                "scales": np.array(scales, np.float32),
            },
        )
        wave = np.asarray(audio, np.float32).ravel()
        loudest = max(0.01, float(np.abs(wave).max(initial=0.0)))
        return np.asarray(wave * (PEAK / loudest * 32767), dtype=np.int16)

    def _piece(
        self, attempt: int, samples: NDArray[np.int16], origin: tuple[int, int] | None
    ) -> Piece:
        body = Body(
            inline=samples.astype("<i2").tobytes(),
            media_type=AUDIO_PCM,
            sample_rate_hz=self._rate_hz,
        )
        return Piece(
            attempt=attempt,
            modality=Modality.AUDIO,
            units=len(samples),
            body=body,
            origin=origin,
        )


def cut_phonemes(said: str, symbols_max: int = RUN_SYMBOLS_MAX) -> Iterator[str]:
    """Cut what one run cannot take, between words where there are any."""
    while len(said) > symbols_max:
        space = said.rfind(" ", 1, symbols_max)
        end = space if space > 0 else symbols_max
        yield said[:end]
        said = said[end:]
    yield said


def _cut(samples: NDArray[np.int16]) -> Iterator[NDArray[np.int16]]:
    for start in range(0, len(samples), PIECE_SAMPLES):
        yield samples[start : start + PIECE_SAMPLES]
