"""What the shapes model is about: eight shapes in ten colours, drawn, captioned and recognised."""

import math
import random
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

__all__ = ["COLOURS", "SHAPES", "SIDE", "SIZES", "Judge", "caption", "draw_caption", "draw_mask"]

SIDE: Final = 32
"""Width and height of an image, in pixels."""

SHAPES: Final = ("circle", "square", "triangle", "star", "diamond", "cross", "ring", "heart")
COLOURS: Final = {
    "red": (220, 30, 35),
    "green": (30, 160, 60),
    "blue": (35, 70, 215),
    "yellow": (250, 220, 40),
    "orange": (245, 135, 25),
    "purple": (130, 45, 170),
    "pink": (250, 140, 190),
    "white": (248, 248, 248),
    "black": (15, 15, 18),
    "cyan": (50, 205, 220),
}
SIZES: Final = {"small": (0.20, 0.23), "large": (0.40, 0.43), "": (0.29, 0.36)}
"""Radius of each size, as a range of parts of the side."""

_OVERSAMPLING = 6
_POLYGONS: Final = {
    "square": [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
    "diamond": [(0, -1.15), (0.8, 0), (0, 1.15), (-0.8, 0)],
    "triangle": [(0, -1.1), (1.05, 0.8), (-1.05, 0.8)],
    "star": [
        (radius * math.sin(k * math.pi / 5), -radius * math.cos(k * math.pi / 5))
        for k, radius in enumerate([1.15, 0.47] * 5)
    ],
    "cross": [
        (-0.36, -1), (0.36, -1), (0.36, -0.36), (1, -0.36), (1, 0.36), (0.36, 0.36),
        (0.36, 1), (-0.36, 1), (-0.36, 0.36), (-1, 0.36), (-1, -0.36), (-0.36, -0.36),
    ],
    "heart": [
        (
            16 * math.sin(t) ** 3 / 15.5,
            -sum(k * math.cos(n * t) for n, k in enumerate((13, -5, -2, -1), 1)) / 15.5,
        )
        for t in np.linspace(0, 2 * math.pi, 60)
    ],
}  # fmt: skip


def draw_mask(
    shape: str, radius: float, centre: tuple[float, float], turn: float
) -> NDArray[np.uint8]:
    """Draw how much of each pixel a shape covers, 0 to 255; lengths are parts of the side."""
    side = SIDE * _OVERSAMPLING
    image = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(image)
    x, y, r = centre[0] * side, centre[1] * side, radius * side
    if shape in {"circle", "ring"}:
        pen.ellipse((x - r, y - r, x + r, y + r), fill=255)
        if shape == "ring":
            hole = r * 0.58
            pen.ellipse((x - hole, y - hole, x + hole, y + hole), fill=0)
    else:
        cos, sin = math.cos(turn), math.sin(turn)
        pen.polygon(
            [
                (x + r * (u * cos - v * sin), y + r * (u * sin + v * cos))
                for u, v in _POLYGONS[shape]
            ],
            fill=255,
        )
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.uint8)


def caption(colour: str, shape: str, background: str, size: str = "") -> str:
    """Describe an image in the words that the model knows best."""
    head = " ".join(word for word in (size, colour, shape) if word)
    return f"{_article(head)} {head} on {_article(background)} {background} background"


def draw_caption(rng: random.Random) -> tuple[str, str, str, str]:
    """Draw a colour, a shape, another colour for the background, and their caption."""
    colour, background = rng.sample(list(COLOURS), 2)
    shape = rng.choice(SHAPES)
    return colour, shape, background, caption(colour, shape, background)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


class Judge:
    """Tells the colour, the background and the shape of an image, by measuring it."""

    def __init__(self, masks_per_size: int = 40, seed: int = 9) -> None:
        rng = random.Random(seed)
        self._names = list(COLOURS)
        self._palette = np.array(list(COLOURS.values()), dtype=float)
        self._masks = {
            shape: np.stack(
                [
                    draw_mask(shape, rng.uniform(*span), _centre(rng), rng.uniform(-0.05, 0.05))
                    > 127
                    for span in SIZES.values()
                    for _ in range(masks_per_size)
                ]
            )
            for shape in SHAPES
        }

    def colours(self, image: Image.Image) -> tuple[str, str]:
        """Name the palette colours nearest to the shape and to the background."""
        pixels, distance = self._measure(image)
        top = np.quantile(distance, 0.97)
        return (
            self._nearest(np.median(pixels[distance > 0.8 * top], axis=0)),
            self._nearest(np.median(_border(pixels), axis=0)),
        )

    def shape(self, image: Image.Image) -> str:
        """Name the shape whose mask overlaps best (intersection over union)."""
        _, distance = self._measure(image)
        mask = distance > 0.5 * np.quantile(distance, 0.97)
        overlap = {
            shape: ((mask & known).sum((1, 2)) / (mask | known).sum((1, 2))).max()
            for shape, known in self._masks.items()
        }
        return max(overlap, key=lambda shape: float(overlap[shape]))

    def _measure(self, image: Image.Image) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
        pixels = np.asarray(small, dtype=float)
        return pixels, np.linalg.norm(pixels - np.median(_border(pixels), axis=0), axis=2)

    def _nearest(self, colour: NDArray[np.float64]) -> str:
        return self._names[int(np.argmin(np.linalg.norm(self._palette - colour, axis=1)))]


def _border(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])


def _centre(rng: random.Random) -> tuple[float, float]:
    return 0.5 + rng.uniform(-0.035, 0.035), 0.5 + rng.uniform(-0.035, 0.035)
