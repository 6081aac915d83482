"""Loads the shapes model into a stock `StableDiffusionPipeline`.

Two parts of the model are not in diffusers: the images are small enough to do without latents, so a
pixel shuffle without weights stands where a VAE would; and the first convolution adds a learned map
of positions, without which so small a UNet learns layouts slowly.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from safetensors.torch import load_file
from transformers import CLIPTextModel, PreTrainedTokenizerFast

__all__ = ["PATCH", "PixelShuffleVae", "PositionedConv", "assemble", "load"]

PATCH = 4
"""Side of the square of pixels that becomes one latent position."""


class PixelShuffleVae(torch.nn.Module):
    """Turns (batch, 3, height, width) into (batch, 48, height / 4, width / 4) and back."""

    def __init__(self, patch: int = PATCH) -> None:
        super().__init__()
        self.patch = patch
        self._tensor: torch.Tensor
        self.register_buffer("_tensor", torch.zeros(1), persistent=False)
        # The pipeline derives its scale factor from the number of block channels.
        self.config = SimpleNamespace(
            block_out_channels=[0] * (int(math.log2(patch)) + 1),
            latent_channels=3 * patch * patch,
            scaling_factor=1.0,
            shift_factor=0.0,
            force_upcast=False,
        )

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type that the pipeline should use."""
        return self._tensor.dtype

    @property
    def device(self) -> torch.device:
        """Where the pipeline should put its tensors."""
        return self._tensor.device

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Fold pixels in [-1, 1] into latents."""
        return torch.nn.functional.pixel_unshuffle(pixels, self.patch)

    def decode(
        self,
        latents: torch.Tensor,
        return_dict: bool = False,
        generator: torch.Generator | None = None,
    ) -> tuple[torch.Tensor]:
        """Unfold latents into pixels in [-1, 1]."""
        return (torch.nn.functional.pixel_shuffle(latents, self.patch),)


class PositionedConv(torch.nn.Module):
    """A convolution whose output gets a learned map of positions added."""

    def __init__(self, conv: torch.nn.Conv2d, side: int) -> None:
        super().__init__()
        self.conv = conv
        self.pos = torch.nn.Parameter(torch.randn(1, conv.out_channels, side, side) * 0.2)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        """Apply the convolution, then the map."""
        mapped: torch.Tensor = self.conv(latents)
        return mapped + self.pos


def assemble(
    tokenizer: PreTrainedTokenizerFast,
    text_encoder: CLIPTextModel,
    unet: UNet2DConditionModel,
    scheduler: DDIMScheduler,
) -> StableDiffusionPipeline:
    """Make a pipeline of the parts, with the pixel shuffle as its VAE."""
    pipeline = StableDiffusionPipeline(
        vae=PixelShuffleVae(),
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        image_encoder=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def load(folder: Path) -> StableDiffusionPipeline:
    """Load the pipeline from a folder of safetensors, in 32-bit floats, ready to run."""
    unet = UNet2DConditionModel.from_config(UNet2DConditionModel.load_config(folder / "unet"))
    unet.conv_in = PositionedConv(unet.conv_in, unet.config.sample_size)
    unet.load_state_dict(load_file(folder / "unet" / "diffusion_pytorch_model.safetensors"))
    unet.to(torch.float32).eval()
    text_encoder = CLIPTextModel.from_pretrained(folder / "text_encoder", dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")
    return assemble(
        tokenizer, text_encoder.eval(), unet, DDIMScheduler.from_pretrained(folder / "scheduler")
    )
