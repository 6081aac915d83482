"""The one module that touches what vLLM does not publish; a test pins the version it was read from.

`AsyncLLM.generate` wakes one generator for each request and engine step. Here all requests share
one sink: vLLM's own output loop puts what one step made into it, and the engine takes the whole
list at once. Everything else (batching, detokenizing, stops) stays vLLM's.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

__all__ = ["KNOWN_VERSIONS", "StepSink", "submit", "watch"]

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


async def submit(llm: Any, sink: StepSink, request_id: str, prompt: Any, params: Any) -> None:
    """Give vLLM a request whose outputs go to the sink.

    Between vLLM's own note of it and its message to the engine core nothing is awaited, so that an
    abort either prevents a request or follows it.

    Raises:
        VLLMClientError: If vLLM refuses the prompt or the parameters.
        EngineDeadError: If the engine core is gone.
    """
    tasks = await llm.get_supported_tasks()
    request = llm.input_processor.process_inputs(request_id, prompt, params, supported_tasks=tasks)
    llm.input_processor.assign_request_id(request)
    llm._run_output_handler()
    llm.check_admission(request_id=request.request_id)
    llm.output_processor.add_request(request, None, None, 0, sink)
    await llm.engine_core.add_request_async(request)


async def watch(llm: Any) -> None:
    """Wait until vLLM's output loop ends, as it does when the engine core dies, then raise.

    Raises:
        EngineDeadError: Always.
    """
    llm._run_output_handler()
    await asyncio.wait({llm.output_handler})
    raise llm.dead_error
