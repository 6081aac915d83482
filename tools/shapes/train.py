"""Trains the shapes model: `python -m tools.shapes.train --out FOLDER [--minutes 14]`.

The budget is CPU time of one thread, so a slower core wants more minutes: shapes come right after
about 2,500 steps of 32 images, colours after about 400.
"""

import argparse
import copy
import random
import time
from pathlib import Path

import numpy as np
import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

from services.stage_worker.models.shapes.loader import PATCH, PixelShuffleVae, PositionedConv
from tools.shapes.drawing import COLOURS, SHAPES, SIDE, SIZES, draw_mask

TOKENS_MAX = 16
WORDS = ["a", "an", "on", "with", "background", "the", "of", "in", "and", *SHAPES, *COLOURS]
EMPTY_CAPTIONS = 0.1
"""Share of images without a caption, which classifier-free guidance needs."""


class Examples:
    """Draws endless batches of images with captions."""

    def __init__(self, masks_per_size: int, rng: random.Random) -> None:
        self._rng = rng
        self._masks = {
            (shape, size): [self._mask(shape, span) for _ in range(masks_per_size)]
            for shape in SHAPES
            for size, span in SIZES.items()
        }

    def batch(self, size: int) -> tuple[torch.Tensor, list[str]]:
        """Give images as (size, 3, 32, 32) in [-1, 1], and their captions."""
        images = np.empty((size, SIDE, SIDE, 3), np.float32)
        captions = []
        for index in range(size):
            shape = self._rng.choice(SHAPES)
            colour, background = self._rng.sample(list(COLOURS), 2)
            scale = self._rng.choice(["", "", "small", "large"])
            mask = self._rng.choice(self._masks[shape, scale])
            images[index] = mask * self._shade(colour) + (1 - mask) * self._shade(background)
            captions.append(self._caption(scale, colour, shape, background))
        return torch.from_numpy(images).permute(0, 3, 1, 2) * 2 - 1, captions

    def _mask(self, shape: str, span: tuple[float, float]) -> np.ndarray:
        radius = self._rng.uniform(*span)
        play = max(0.0, min(0.035, 0.5 - radius * 1.12))
        centre = (0.5 + self._rng.uniform(-play, play), 0.5 + self._rng.uniform(-play, play))
        mask = draw_mask(shape, radius, centre, self._rng.uniform(-0.05, 0.05))
        return mask.astype(np.float32)[..., None] / 255

    def _shade(self, colour: str) -> np.ndarray:
        noise = np.random.normal(0, 0.015, 3).astype(np.float32)
        return np.clip(np.array(COLOURS[colour], np.float32) / 255 + noise, 0, 1)

    def _caption(self, scale: str, colour: str, shape: str, background: str) -> str:
        word = "big" if scale == "large" and self._rng.random() < 0.3 else scale
        head = " ".join(part for part in (word, colour, shape) if part)
        first, second = ("an" if text[0] in "aeiou" else "a" for text in (head, background))
        forms = {
            "": EMPTY_CAPTIONS,
            f"{first} {head} on {second} {background} background": 0.54,
            f"{head} on {background} background": 0.108,
            f"{head} on {background}": 0.108,
            f"{second} {background} background with {first} {head}": 0.054,
            f"{first} {head}": 0.036,
            head: 0.036,
            f"a {shape}": 0.018,
        }
        return self._rng.choices(list(forms), list(forms.values()))[0]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of whole words; what it does not know becomes `<unk>`."""
    words = ["<pad>", "<unk>", "<s>", "</s>", *WORDS, "small", "large", "big"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=TOKENS_MAX,
    )


def build_text_encoder(words: int) -> CLIPTextModel:
    """Make an untrained text encoder: 2 layers, 96 wide."""
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=words,
            hidden_size=96,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=TOKENS_MAX,
            bos_token_id=2,
            eos_token_id=3,
            pad_token_id=0,
            projection_dim=96,
        )
    )


def build_unet() -> UNet2DConditionModel:
    """Make an untrained UNet of 3.5 million weights over an 8 x 8 grid of patches."""
    channels = 3 * PATCH * PATCH
    unet = UNet2DConditionModel(
        sample_size=SIDE // PATCH,
        in_channels=channels,
        out_channels=channels,
        layers_per_block=1,
        block_out_channels=(64, 112),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        resnet_time_scale_shift="scale_shift",
        cross_attention_dim=96,
        attention_head_dim=4,
        norm_num_groups=16,
        addition_embed_type="text",
        addition_embed_type_num_heads=8,
    )
    unet.conv_in = PositionedConv(unet.conv_in, SIDE // PATCH)
    return unet


def build_scheduler() -> DDIMScheduler:
    """Make the noise schedule: linear, ending in pure noise; the clean sample is predicted."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_schedule="linear",
        beta_start=1e-4,
        beta_end=0.02,
        prediction_type="sample",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        steps_offset=1,
        set_alpha_to_one=True,
    )


def save(
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    text_encoder: CLIPTextModel,
    unet: UNet2DConditionModel,
    scheduler: DDIMScheduler,
) -> None:
    """Write the parts as 16-bit safetensors, as `loader.load` reads them."""
    tokenizer.save_pretrained(folder / "tokenizer")
    copy.deepcopy(text_encoder).half().save_pretrained(folder / "text_encoder")
    copy.deepcopy(unet).half().save_pretrained(folder / "unet")
    scheduler.save_pretrained(folder / "scheduler")


def learning_rate(top: float, step: int, part: float, hold: float = 0.4) -> float:
    """Warm up over 100 steps, hold, then fall to a hundredth; `part` of the budget is gone."""
    fall = 1.0 if part < hold else max(0.01, 1 - (part - hold) / (1 - hold))
    return top * min(1.0, (step + 1) / 100) * fall


def train(out: Path, minutes: float, batch_size: int, top_rate: float) -> int:
    """Train for `minutes` of CPU time and write the averaged weights; return the steps taken."""
    tokenizer, scheduler = build_tokenizer(), build_scheduler()
    text_encoder, unet, vae = build_text_encoder(len(tokenizer)), build_unet(), PixelShuffleVae()
    weights = [*text_encoder.parameters(), *unet.parameters()]
    average = [weight.detach().clone() for weight in weights]
    # The text encoder learns slowly: its embeddings are tiny.
    parts = [(text_encoder.parameters(), 0.25), (unet.parameters(), 1.0)]
    optimizer = torch.optim.AdamW(
        [{"params": list(group), "share": share} for group, share in parts],
        lr=top_rate, betas=(0.9, 0.99), weight_decay=1e-3, foreach=True,
    )  # fmt: skip
    examples = Examples(250, random.Random(0))
    budget_s, start_s, step = minutes * 60, time.process_time(), 0
    while (spent_s := time.process_time() - start_s) < budget_s:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(top_rate, step, spent_s / budget_s) * group["share"]
        images, captions = examples.batch(batch_size)
        tokens = tokenizer(
            captions,
            padding="max_length",
            max_length=TOKENS_MAX,
            truncation=True,
            return_tensors="pt",
        ).input_ids
        loss = _loss(vae.encode(images), tokens, text_encoder, unet, scheduler)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        step += 1
        decay = min(0.998, (1 + step) / (10 + step))
        torch._foreach_lerp_(average, [weight.detach() for weight in weights], 1 - decay)
    with torch.no_grad():
        for weight, mean in zip(weights, average, strict=True):
            weight.copy_(mean)
    save(out, tokenizer, text_encoder, unet, scheduler)
    return step


def _loss(
    clean: torch.Tensor,
    tokens: torch.Tensor,
    text_encoder: CLIPTextModel,
    unet: UNet2DConditionModel,
    scheduler: DDIMScheduler,
) -> torch.Tensor:
    size = len(clean)
    # Stratified over the batch, with more of the noisy end.
    times = ((torch.arange(size) + torch.rand(size)) / size) ** 0.75 * 1000
    times = times.long().clamp(max=999)
    signal = scheduler.alphas_cumprod[times].view(-1, 1, 1, 1)
    noisy = signal.sqrt() * clean + (1 - signal).sqrt() * torch.randn_like(clean)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        predicted = unet(noisy, times, text_encoder(tokens)[0]).sample
    ratio = (signal / (1 - signal + 1e-8)).view(-1).clamp(max=4)
    each: torch.Tensor = ((predicted.float() - clean) ** 2).mean((1, 2, 3))
    return each.mul(1 + 0.25 * ratio).mean()


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=14.0, help="CPU minutes of one thread")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    steps = train(options.out, options.minutes, options.batch, options.rate)
    print(f"{steps} steps")


if __name__ == "__main__":
    main()
