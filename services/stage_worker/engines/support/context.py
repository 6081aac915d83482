"""How long an answer may be: what is asked for, cut to what the model's context has room for."""

from stagemesh.errors import invalid
from stagemesh.media import Sampling

__all__ = ["answer_tokens_max"]


def answer_tokens_max(sampling: Sampling, *, prompt_tokens: int, context_tokens_max: int) -> int:
    """Give how many tokens an attempt may make; without a wish, all that fit.

    Raises:
        MeshError: If the prompt is empty, or leaves no room for a single token.
    """
    if prompt_tokens == 0:
        raise invalid("the prompt is empty", param="messages")
    room = context_tokens_max - prompt_tokens
    if room < 1:
        raise invalid(
            f"the prompt has {prompt_tokens} tokens, and the model takes {context_tokens_max} "
            "together with the answer",
            param="messages",
            reason="context_length_exceeded",
        )
    return room if sampling.tokens_max is None else min(sampling.tokens_max, room)
