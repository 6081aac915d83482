"""Images by any diffusers pipeline, from a prompt or from embeddings that other stages made.

Works of one shape run as one batch. Each denoising step is a step of the engine: it reports
progress, and a batch that nobody waits for any more stops at it.
"""

import importlib
import inspect
import io
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from diffusers import DiffusionPipeline
from PIL.Image import Image
from safetensors.torch import load

from services.stage_worker.engines.base import (
    Capabilities,
    EngineConfig,
    ModelCard,
    Piece,
    ResumeContract,
    TensorsInput,
    Work,
)
from services.stage_worker.engines.support.job import Job
from services.stage_worker.engines.support.options import Count, read_options
from services.stage_worker.engines.support.tensors import shape_in
from services.stage_worker.engines.support.texts import text_of
from services.stage_worker.engines.support.threaded import Give, ThreadedEngine
from services.stage_worker.engines.support.weights import locate
from stagemesh.errors import BadSettings, invalid, unsupported
from stagemesh.media import IMAGE_PNG, Body, ImageParams, Modality
from stagemesh.outcome import End, FinishReason, Usage

__all__ = ["DiffusersEngine", "Options", "create"]

NEGATIVE = "negative"
"""The companion whose embeddings are what the image should not be."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mesh file may set under `options`."""

    slots: Count = 8
    batch_max: Count = 4
    threads: Count = 1
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """For stock pipelines; a loader chooses for itself."""
    loader: str = ""
    """`module:function` that takes the model's folder and gives a pipeline, for models with code of
    their own; empty loads a stock pipeline."""
    sizes: list[tuple[int, int]] = []
    """The widths and heights that the model can draw; empty leaves it to the pipeline."""
    side_max: Count = 2048
    steps_max: Count = 150
    steps: Count = 20
    guidance_scale: float = 2.0


class _Shape(msgspec.Struct, frozen=True):
    """What works must share to run as one batch."""

    width: int | None
    height: int | None
    steps: int
    guidance_scale: float
    tensors: tuple[tuple[str, tuple[int, ...]], ...] = ()


def create(config: EngineConfig) -> "DiffusersEngine":
    """Make the engine that the mesh file describes."""
    return DiffusersEngine(config, read_options(config, Options))


class DiffusersEngine(ThreadedEngine):
    """One diffusion pipeline."""

    def __init__(self, config: EngineConfig, options: Options) -> None:
        super().__init__(config, slots=options.slots, batch_max=options.batch_max)
        self._options = options

    @property
    def capabilities(self) -> Capabilities:
        """A prompt or embeddings in, an image out; the same seed gives the same image."""
        return Capabilities(
            input_modalities=frozenset({Modality.TEXT, Modality.TENSOR}),
            output_modalities=frozenset({Modality.IMAGE}),
            stream_input=False,
            stream_output=False,
            resume_contract=ResumeContract.REPLAY,
            deterministic=True,
            slots=self.slots,
            params=frozenset(f"image.{name}" for name in ImageParams.__struct_fields__),
        )

    def load_model(self, progress: Callable[[str], None]) -> ModelCard:
        """Load the pipeline and draw two steps of an image."""
        weights = locate(self.config.model, "diffusers")
        progress(f"loading {weights.name}")
        torch.set_num_threads(self._options.threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._pipeline: Any = self._open(weights.path).to(self._device)
        self._pipeline.set_progress_bar_config(disable=True)
        self._accepted = frozenset(inspect.signature(self._pipeline.__call__).parameters)
        width, height = self._options.sizes[0] if self._options.sizes else (None, None)
        shape = _Shape(width, height, 2, self._options.guidance_scale)
        self._draw(shape, {"prompt": ["ready"]}, [0], lambda: False)
        return ModelCard(model=weights.name, digest=weights.digest)

    def accept(self, work: Work) -> None:
        """Refuse an image that the model cannot draw, or that is beyond what one may ask for."""
        image, options = work.params.image, self._options
        size = (image.width, image.height)
        if options.sizes and size != (None, None) and size not in options.sizes:
            known = ", ".join(f"{width}x{height}" for width, height in options.sizes)
            raise unsupported(f"this model draws {known} only", param="size")
        if max(image.width or 0, image.height or 0) > options.side_max:
            raise invalid(f"no side may be above {options.side_max} pixels", param="size")
        if (image.steps or 0) > options.steps_max:
            raise invalid(f"there may be at most {options.steps_max} steps", param="steps")

    def batch_key(self, work: Work) -> Hashable:
        """Works of one shape and with tensors of one shape may run together."""
        return self._shape(work)

    def run(self, jobs: list[Job], give: Give) -> None:
        """Draw a batch of images."""

        def stop() -> bool:
            give([])
            return all(job.ended for job in jobs)

        seeds = [job.work.seed for job in jobs]
        images = self._draw(self._shape(jobs[0].work), self._conditions(jobs), seeds, stop)
        give([_piece(job, image) for job, image in zip(jobs, images, strict=True)])

    def _open(self, folder: Path) -> Any:
        if self._options.loader:
            module, _, name = self._options.loader.partition(":")
            try:
                loader = getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError, ValueError) as error:
                raise BadSettings(f"pool {self.config.pool}: options: loader: {error}") from error
            return loader(folder)
        dtype = getattr(torch, self._options.dtype)
        return DiffusionPipeline.from_pretrained(folder, dtype=dtype, use_safetensors=True)

    def _shape(self, work: Work) -> _Shape:
        image: ImageParams = work.params.image
        options = self._options
        scale = image.guidance_scale
        given = work.input.buffers if isinstance(work.input, TensorsInput) else {}
        return _Shape(
            image.width,
            image.height,
            image.steps or options.steps,
            options.guidance_scale if scale is None else scale,
            tuple((name, shape_in(given[name], "hidden")) for name in sorted(given)),
        )

    def _conditions(self, jobs: list[Job]) -> dict[str, Any]:
        """Give what the images should show and what not, as embeddings or as prompts."""
        given = [job.work.input for job in jobs if isinstance(job.work.input, TensorsInput)]
        if given:
            conditions = self._embeddings(given, "", "")
            if NEGATIVE in given[0].buffers:
                conditions |= self._embeddings(given, NEGATIVE, "negative_")
            return conditions
        return {
            "prompt": [text_of(job.work.input, param="prompt") for job in jobs],
            "negative_prompt": [job.work.params.image.negative_prompt or "" for job in jobs],
        }

    def _embeddings(
        self, given: list[TensorsInput], companion: str, prefix: str
    ) -> dict[str, torch.Tensor]:
        parts = [load(one.buffers[companion]) for one in given]
        names = {"hidden": f"{prefix}prompt_embeds", "pooled": f"{prefix}pooled_prompt_embeds"}
        return {
            names[name]: torch.cat([part[name] for part in parts]).to(
                self._device, self._pipeline.dtype
            )
            for name in names.keys() & parts[0].keys()
        }

    def _draw(
        self, shape: _Shape, conditions: dict[str, Any], seeds: list[int], stop: Callable[[], bool]
    ) -> list[Image]:
        def on_step(pipeline: Any, _step: int, _time: Any, values: Any) -> Any:
            pipeline._interrupt = stop()  # The documented way to stop a pipeline between steps.
            return values

        arguments = {
            **conditions,
            "width": shape.width,
            "height": shape.height,
            "num_inference_steps": shape.steps,
            "guidance_scale": shape.guidance_scale,
            "generator": [torch.Generator("cpu").manual_seed(seed) for seed in seeds],
            "callback_on_step_end": on_step,
        }
        known = {name: value for name, value in arguments.items() if name in self._accepted}
        try:
            return list(self._pipeline(**known).images)
        except ValueError as error:  # The pipelines' own checks of what they can draw.
            if shape.width is None and shape.height is None:
                raise
            raise invalid(str(error), param="size") from error


def _piece(job: Job, image: Image) -> Piece:
    file = io.BytesIO()
    image.save(file, "PNG")
    return Piece(
        attempt=job.work.attempt,
        modality=Modality.IMAGE,
        units=1,
        body=Body(inline=file.getvalue(), media_type=IMAGE_PNG, shape=image.size),
        end=End(finish_reason=FinishReason.STOP, usage=Usage(images=1)),
    )
