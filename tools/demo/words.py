"""Draws the demo's inputs."""

import random

__all__ = ["draw_question", "draw_sentence"]

_TOPICS = [
    "the sea", "a bicycle", "bread", "the moon", "a garden", "winter", "a library", "the piano",
    "a river", "tea", "a lighthouse", "honey bees", "an old train", "the desert", "a market",
]  # fmt: skip
_KINDS = ["a short story", "two paragraphs", "a friendly letter", "a news report", "a description"]
_WHO = ["my sister", "the teacher", "our neighbor", "his brother", "the farmer", "my grandmother"]
_DID = ["bought", "found", "painted", "carried", "repaired", "cleaned"]
_WHAT = ["a wooden table", "the yellow boat", "a heavy suitcase", "the broken window", "a red coat"]
_WHERE = [
    "near the old church",
    "behind the train station",
    "in the small village",
    "beside the river",
]
_WHEN = [
    "early in the morning",
    "after the long meeting",
    "before the summer ended",
    "two weeks ago",
]


def draw_question(rng: random.Random) -> str:
    """Draw a question whose answer is longer than a few words."""
    return f"Write {rng.choice(_KINDS)} about {rng.choice(_TOPICS)}."


def draw_sentence(rng: random.Random) -> str:
    """Draw an English sentence of about fourteen plain words."""
    parts = [rng.choice(words) for words in (_WHO, _DID, _WHAT, _WHERE, _WHEN)]
    sentence = " ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."
