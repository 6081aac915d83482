"""Judges the shapes model: `python -m tools.shapes.evaluate FOLDER [--images 64] [--seed N]`."""

import argparse
import random
from pathlib import Path

import torch

from services.stage_worker.models.shapes.loader import load
from tools.shapes.drawing import Judge, draw_caption


def main() -> None:
    """Draw captions at random, make their images, and print how many are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    torch.set_num_threads(1)
    pipeline, judge, rng = load(options.folder), Judge(), random.Random(options.seed)
    right = {"colour": 0, "background": 0, "shape": 0, "all": 0}
    for index in range(options.images):
        colour, shape, background, caption = draw_caption(rng)
        image = pipeline(
            caption,
            num_inference_steps=options.steps,
            guidance_scale=options.guidance,
            generator=torch.Generator().manual_seed(options.seed + index),
        ).images[0]
        seen_colour, seen_background = judge.colours(image)
        hits = [seen_colour == colour, seen_background == background, judge.shape(image) == shape]
        for name, hit in zip(right, [*hits, all(hits)], strict=True):
            right[name] += hit
    parts = "  ".join(f"{name} {count}/{options.images}" for name, count in right.items())
    print(f"seed {options.seed}: {parts}")


if __name__ == "__main__":
    main()
