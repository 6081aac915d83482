"""What a result of the demo must be, as pure functions that raise `CheckFailed`."""

import io
import re
import wave

import inflect
import jiwer
import numpy as np

__all__ = ["CheckFailed", "check", "loudness", "pcm_of_wav", "plausible_s", "word_error"]

_NUMBERS = inflect.engine()
SPEECH_CHARACTERS_PER_S = (6.0, 30.0)
"""No voice speaks more slowly or faster than this."""


class CheckFailed(AssertionError):
    """A result is not what it must be."""


def check(condition: bool, message: str) -> None:
    """Raise `CheckFailed` with the message unless the condition holds."""
    if not condition:
        raise CheckFailed(message)


def pcm_of_wav(data: bytes) -> tuple[bytes, int]:
    """Give the 16-bit mono samples of a WAV file and their rate, after checking its header."""
    check(data[:4] == b"RIFF" and data[8:12] == b"WAVE", "no RIFF header")
    with wave.open(io.BytesIO(data)) as file:
        check(file.getsampwidth() == 2 and file.getnchannels() == 1, "not 16-bit mono")
        samples = file.readframes(file.getnframes())
        check(len(samples) == 2 * file.getnframes(), "fewer samples than the header says")
        return samples, file.getframerate()


def loudness(pcm: bytes) -> float:
    """Give the root mean square of 16-bit samples, as a part of full scale."""
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float64) / 32768
    return float(np.sqrt(np.mean(samples**2))) if len(samples) else 0.0


def plausible_s(text: str, duration_s: float) -> bool:
    """Tell whether speaking the text may take so long."""
    slow, fast = SPEECH_CHARACTERS_PER_S
    return len(text) / fast <= duration_s <= len(text) / slow + 1.0


def word_error(reference: str, heard: str) -> float:
    """Give the word error rate after bringing case, punctuation and numbers to one form."""
    return float(jiwer.wer(_normal(reference), _normal(heard)))


def _normal(text: str) -> str:
    spelled = re.sub(r"\d+", lambda match: f" {_NUMBERS.number_to_words(match[0])} ", text.lower())
    return " ".join(re.sub(r"[^a-z' ]", " ", spelled.replace("-", " ")).split())
