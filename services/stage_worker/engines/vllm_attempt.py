"""One attempt in vLLM's hands: what it has given so far, and the pieces made of vLLM's outputs."""

import asyncio
from typing import Any, Final

from services.stage_worker.engines.base import Piece, Work
from stagemesh.outcome import End, FinishReason, Usage, error_for

__all__ = ["Attempt"]

_FINISH: Final = {
    "length": FinishReason.LENGTH,
    "repetition": FinishReason.STOP,
    "stop": FinishReason.STOP,
}
"""Why an answer was over; any other reason means that vLLM gave it up."""


class Attempt:
    """What the engine remembers of one attempt."""

    task: "asyncio.Task[None]"
    """Gives it to vLLM."""

    def __init__(self, work: Work) -> None:
        self.number = work.attempt
        self.work = work
        self.begun = work.resume.token_ids if work.resume else ()
        self.name = f"{work.request_id}-{work.stage}-{work.attempt}"
        self.prompt_tokens = 0
        self.aborted = False
        self._cached_tokens = 0
        self._tokens = len(self.begun)

    def take(self, output: Any) -> Piece:
        """Make the piece of one `RequestOutput`."""
        (completion,) = output.outputs
        ids = list(completion.token_ids)
        self._tokens += len(ids)
        self._cached_tokens = output.num_cached_tokens or 0
        end = error = None
        if output.finished:
            stop = completion.stop_reason
            finish = _FINISH.get(completion.finish_reason, FinishReason.ABORT)
            end = self.end(finish, stop if isinstance(stop, str) else "")
            if finish is FinishReason.ABORT:
                error = error_for("engine_error", "vLLM gave the attempt up", retryable=True)
        return Piece(
            attempt=self.number, units=len(ids), text=completion.text, ids=ids, end=end, error=error
        )

    def usage_end(self) -> End | None:
        """Make the end that goes with an error, if anything was used."""
        return self.end(FinishReason.ABORT) if self._tokens else None

    def end(self, finish: FinishReason, stop_match: str = "") -> End:
        """Make its end, with what it used."""
        usage = Usage(
            prompt_tokens=self.prompt_tokens,
            # Of an answer that goes on here, tokens of the answer may be cached as well.
            cached_tokens=min(self._cached_tokens, self.prompt_tokens),
            completion_tokens=self._tokens,
        )
        return End(finish_reason=finish, stop_match=stop_match, usage=usage)
