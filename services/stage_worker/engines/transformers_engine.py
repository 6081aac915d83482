"""Encoders of Hugging Face transformers: text in, its hidden states out, as one tensor buffer.

The result of one attempt is a safetensors buffer with `hidden`, (1, tokens, width), and `pooled`,
(1, width), where the model gives one.
"""

from collections.abc import Callable, Hashable
from typing import Any

import msgspec
import torch
from safetensors.torch import save
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from services.stage_worker.engines.base import (
    Capabilities,
    EngineConfig,
    ModelCard,
    Piece,
    ResumeContract,
    Work,
)
from services.stage_worker.engines.support.job import Job
from services.stage_worker.engines.support.options import Count, read_options
from services.stage_worker.engines.support.texts import text_of
from services.stage_worker.engines.support.threaded import Give, ThreadedEngine
from services.stage_worker.engines.support.weights import locate
from stagemesh.media import SAFETENSORS, Body, Modality
from stagemesh.outcome import End, FinishReason, Usage

__all__ = ["Options", "TransformersEngine", "create"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mesh file may set under `options`."""

    slots: Count = 16
    batch_max: Count = 8
    threads: Count = 1
    format: str = "hf"
    model_folder: str = ""
    """Where the encoder lies inside the model, for example "text_encoder"."""
    tokenizer_folder: str = ""
    pad_to_max: bool = False
    """Pad every text to the model's longest, as diffusion models expect it."""


def create(config: EngineConfig) -> "TransformersEngine":
    """Make the engine that the mesh file describes."""
    return TransformersEngine(config, read_options(config, Options))


class TransformersEngine(ThreadedEngine):
    """One encoder; waiting texts are encoded together."""

    def __init__(self, config: EngineConfig, options: Options) -> None:
        super().__init__(config, slots=options.slots, batch_max=options.batch_max)
        self._options = options

    @property
    def capabilities(self) -> Capabilities:
        """Text in, tensors out."""
        return Capabilities(
            input_modalities=frozenset({Modality.TEXT}),
            output_modalities=frozenset({Modality.TENSOR}),
            stream_input=False,
            stream_output=False,
            resume_contract=ResumeContract.REPLAY,
            deterministic=True,
            slots=self.slots,
            context_tokens_max=self._tokens_max,
            # Its bridge makes the text of the companion for a negative prompt of this.
            params=frozenset({"image.negative_prompt"}),
        )

    def load_model(self, progress: Callable[[str], None]) -> ModelCard:
        """Load the encoder and encode one word."""
        weights = locate(self.config.model, self._options.format)
        progress(f"loading {weights.name}")
        disable_progress_bar()
        torch.set_num_threads(self._options.threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        tokenizer_folder = weights.path / self._options.tokenizer_folder
        self._tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_folder)
        model = AutoModel.from_pretrained(
            weights.path / self._options.model_folder, use_safetensors=True
        )
        self._model = getattr(model, "text_model", model).float().to(self._device).eval()
        # A tokenizer without a limit of its own says 10^30.
        positions = getattr(self._model.config, "max_position_embeddings", None)
        self._tokens_max = min(self._tokenizer.model_max_length, positions or 512)
        self._encode(["ready"])
        return ModelCard(model=weights.name, digest=weights.digest)

    def batch_key(self, work: Work) -> Hashable:
        """All texts may be encoded together."""
        return "text"

    def run(self, jobs: list[Job], give: Give) -> None:
        """Encode a batch of texts in one step."""
        results = self._encode([text_of(job.work.input, param="prompt") for job in jobs])
        give([_piece(job, *result) for job, result in zip(jobs, results, strict=True)])

    def _encode(self, texts: list[str]) -> list[tuple[bytes, int]]:
        """Give each text's buffer and its tokens; what is too long for the model is cut."""
        batch = self._tokenizer(
            texts,
            padding="max_length" if self._options.pad_to_max else True,
            truncation=True,
            max_length=self._tokens_max,
            return_tensors="pt",
        ).to(self._device)
        attention = None if self._options.pad_to_max else batch.attention_mask
        with torch.inference_mode():
            output = self._model(input_ids=batch.input_ids, attention_mask=attention)
        counts = batch.attention_mask.sum(dim=1).tolist()
        return [(self._buffer(output, row, count), count) for row, count in enumerate(counts)]

    def _buffer(self, output: Any, row: int, tokens: int) -> bytes:
        length = None if self._options.pad_to_max else tokens
        tensors = {"hidden": output.last_hidden_state[row : row + 1, :length]}
        pooled = getattr(output, "pooler_output", None)
        if pooled is not None:
            tensors["pooled"] = pooled[row : row + 1]
        return bytes(save({name: value.cpu().contiguous() for name, value in tensors.items()}))


def _piece(job: Job, buffer: bytes, tokens: int) -> Piece:
    return Piece(
        attempt=job.work.attempt,
        modality=Modality.TENSOR,
        units=1,
        body=Body(inline=buffer, media_type=SAFETENSORS),
        end=End(finish_reason=FinishReason.STOP, usage=Usage(prompt_tokens=tokens)),
    )
