"""The one module that touches what vLLM does not publish; a test pins the version it was read from.

`AsyncLLM.generate` wakes one generator for each request and engine step. Here all requests share
one sink: vLLM's own output loop puts what one step made into it, and the engine takes the whole
list at once. Everything else (batching, detokenizing, stops) stays vLLM's.
"""

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final

__all__ = ["KNOWN_VERSIONS", "StepSink", "go_on", "submit", "watch"]

KNOWN_VERSIONS: Final = ("0.32.0",)
"""Releases whose internals were read; with any other, the engine uses `AsyncLLM.generate`."""


class StepSink:
    """Stands in for the per-request queue of every request at once.

    vLLM's output loop fills it without giving way in between, so what has come when the event loop
    turns next is what one engine step made. Used from the event loop's thread only.
    """

    def __init__(self, take: Callable[[list[Any]], None]) -> None:
        self._take = take
        self._outputs: list[Any] = []

    def put(self, output: Any) -> None:
        """Take one request's output, or the exception that broke the engine."""
        if not self._outputs:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outputs.append(output)

    def close(self) -> None:
        """Do nothing: vLLM closes a request's queue, but this one is everybody's."""

    def _flush(self) -> None:
        outputs, self._outputs = self._outputs, []
        self._take(outputs)


async def submit(
    llm: Any, sink: StepSink, request_id: str, prompt: Any, params: Any, *, lora: Any = None
) -> None:
    """Give vLLM a request whose outputs go to the sink.

    Between vLLM's own note of it and its message to the engine core nothing is awaited, so that an
    abort either prevents a request or follows it.

    Raises:
        VLLMClientError: If vLLM refuses the prompt or the parameters.
        EngineDeadError: If the engine core is gone.
    """
    request = await _prepared(llm, request_id, prompt, params, lora)
    llm.output_processor.add_request(request, None, None, 0, sink)
    await llm.engine_core.add_request_async(request)


async def go_on(
    llm: Any,
    sink: StepSink,
    request_id: str,
    prompt: Any,
    params: Any,
    *,
    lora: Any = None,
    begun: Sequence[int],
) -> tuple[str, str, bool] | None:
    """Give vLLM a request whose first tokens were made elsewhere; see `submit` for the rest.

    For vLLM's core the tokens are the end of the prompt. Its output side gets them as what they
    are, so that the text of the answer, with all that is held back of an unfinished character or
    for a stop string, goes on as if they had been made here.

    Returns:
        Nothing if it goes on. If the tokens end the answer: the text that was held back, the stop
        string that was found, and whether the model has said the last word.
    """
    whole = len(begun) >= params.max_tokens
    params_left = params.clone()
    params_left.max_tokens = max(1, params.max_tokens - len(begun))
    params_left.min_tokens = max(0, params.min_tokens - len(begun))
    given = {**prompt, "prompt_token_ids": [*prompt["prompt_token_ids"], *([] if whole else begun)]}
    request = await _prepared(llm, request_id, given, params_left, lora)
    told = copy(request)
    told.prompt_token_ids = list(prompt["prompt_token_ids"])
    told.sampling_params = params
    llm.output_processor.add_request(told, None, None, 0, sink)
    state = llm.output_processor.request_states[request.request_id]
    stop_match = state.detokenizer.update(list(begun), False)
    state.detokenizer.get_next_output_text(False, True)  # This much was delivered.
    state.sent_tokens_offset = len(begun)
    last_word = not params.ignore_eos and begun[-1] in request.sampling_params.all_stop_token_ids
    if stop_match or last_word or whole:
        rest = state.detokenizer.get_next_output_text(True, True)
        llm.output_processor._finish_request(state)
        return rest, stop_match or "", last_word
    await llm.engine_core.add_request_async(request)
    return None


async def _prepared(llm: Any, request_id: str, prompt: Any, params: Any, lora: Any) -> Any:
    tasks = await llm.get_supported_tasks()
    request = llm.input_processor.process_inputs(
        request_id, prompt, params, supported_tasks=tasks, lora_request=lora
    )
    llm.input_processor.assign_request_id(request)
    llm._run_output_handler()
    llm.check_admission(request_id=request.request_id)
    return request


async def watch(llm: Any) -> None:
    """Wait until vLLM's output loop ends, as it does when the engine core dies, then raise.

    Raises:
        EngineDeadError: Always.
    """
    llm._run_output_handler()
    await asyncio.wait({llm.output_handler})
    raise llm.dead_error
