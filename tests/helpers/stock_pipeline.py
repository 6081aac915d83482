"""A stock `StableDiffusionPipeline` so small that random weights take a blink."""

from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

__all__ = ["save_stock_pipeline"]

WIDTH = 32


def save_stock_pipeline(folder: Path, tokenizer: Path) -> None:
    """Save a pipeline with random weights as safetensors; it draws 16 by 16 pixels."""
    torch.manual_seed(0)
    words = PreTrainedTokenizerFast.from_pretrained(tokenizer)
    text = CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=words.model_max_length,
    )
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(WIDTH, WIDTH),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    vae = AutoencoderKL(
        block_out_channels=(WIDTH, WIDTH),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=8,
    )
    StableDiffusionPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(text),
        tokenizer=words,
        unet=unet,
        scheduler=DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder, safe_serialization=True)
