"""Turns token ids into text as they come, with stop strings.

The text after n tokens depends on the n ids alone: bytes of an unfinished character are held back,
and so is whatever may be the start of a stop string.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from services.stage_worker.engines.support.stop_strings import StopFinder

__all__ = ["TokenText"]


class TokenText:
    """The text of one attempt's tokens."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._finder = StopFinder(stops)

    @property
    def stop_match(self) -> str:
        """The stop string that was found, or nothing."""
        return self._finder.match

    def push(self, token_id: int) -> str:
        """Take one token; give the text that is now certain, often none."""
        return self._finder.push(self._stream.step(self._tokenizer, token_id) or "")

    def flush(self) -> str:
        """Give the rest at the end of the attempt."""
        return self._finder.flush()
