"""Language models on vLLM: its asynchronous engine, its own batching, token by token.

The same code drives the CUDA and the CPU build; what differs comes from the mesh file's options and
environment.
"""

import asyncio
import getpass
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import vllm
from jinja2 import TemplateError
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMClientError
from vllm.inputs import tokens_input
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from services.stage_worker.engines.base import (
    Capabilities,
    ChatInput,
    EngineConfig,
    EngineInput,
    LoadReport,
    ModelCard,
    Piece,
    ResumeContract,
    TextInput,
    Work,
)
from services.stage_worker.engines.support import children
from services.stage_worker.engines.support.adapters import Loaded
from services.stage_worker.engines.support.chat_template import plain_messages
from services.stage_worker.engines.support.context import answer_tokens_max
from services.stage_worker.engines.support.options import read_options
from services.stage_worker.engines.support.resuming import refuse_uncounted, seed_after
from services.stage_worker.engines.support.scratch import Scratch, environment
from services.stage_worker.engines.support.steps import Steps
from services.stage_worker.engines.support.weights import locate
from services.stage_worker.engines.vllm_attempt import Attempt
from services.stage_worker.engines.vllm_controls import VllmControls
from services.stage_worker.engines.vllm_options import Options
from services.stage_worker.engines.vllm_steps import KNOWN_VERSIONS, StepSink, go_on, submit, watch
from stagemesh.control import Answer, Call
from stagemesh.errors import MeshError, invalid, unsupported
from stagemesh.media import Modality, Sampling
from stagemesh.outcome import ErrorInfo, FinishReason, error_for

__all__ = ["Options", "VllmEngine", "create"]

WARM_UP_S = 120.0

_log = logging.getLogger(__name__)


def create(config: EngineConfig) -> "VllmEngine":
    """Make the engine that the mesh file describes."""
    return VllmEngine(config, read_options(config, Options))


class VllmEngine:
    """One vLLM engine, with its own processes below this one."""

    def __init__(self, config: EngineConfig, options: Options) -> None:
        self._config = config
        self._options = options
        self._attempts: dict[int, Attempt] = {}
        self._by_name: dict[str, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps = Steps()
        self._llm: AsyncLLM | None = None
        self._scratch: Scratch | None = None
        self._support = options.control(**_platform())
        self._controls: VllmControls | None = None
        # The kernel binds vLLM's processes to the thread that starts them: it lives until `close`.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vllm")

    @property
    def capabilities(self) -> Capabilities:
        """Text in, tokens out."""
        return Capabilities(
            input_modalities=frozenset({Modality.TEXT}),
            output_modalities=frozenset({Modality.TEXT}),
            stream_input=False,
            stream_output=True,
            # The public generators cannot be told where the text of an answer stands.
            resume_contract=(
                ResumeContract.TOKENS if self._sink is not None else ResumeContract.RESTART
            ),
            deterministic=False,
            slots=self._options.max_num_seqs,
            context_tokens_max=self._context_max,
            params=frozenset(f"sampling.{name}" for name in Sampling.__struct_fields__),
            control=self._support,
        )

    async def load(self, progress: Callable[[str], None]) -> ModelCard:
        """Start vLLM and answer one short prompt."""
        self._steps.bind()
        weights = locate(self._config.model, "hf")
        progress(f"starting vLLM {vllm.__version__} with {weights.name}")
        loop = asyncio.get_running_loop()
        llm = await loop.run_in_executor(self._thread, self._start, weights.path)
        self._controls = VllmControls(llm, _lora)
        self._tokenizer: Any = llm.get_tokenizer()
        self._context_max = int(llm.model_config.max_model_len)
        known = vllm.__version__.partition("+")[0] in KNOWN_VERSIONS
        self._sink = StepSink(self._take) if self._options.step_level and known else None
        progress("warming up")
        prompt = tokens_input(self._tokenizer.encode("Hello"))
        params = SamplingParams(max_tokens=2, temperature=0.0)
        async with asyncio.timeout(WARM_UP_S):
            async for _ in llm.generate(prompt, params, request_id="warm-up"):
                pass
        if self._sink is not None:
            self._spawn(watch(llm))
        return ModelCard(model=weights.name, digest=weights.digest)

    def submit(self, work: Work) -> None:
        """Start an attempt; what is wrong with its prompt comes as its error piece."""
        attempt = Attempt(work)
        self._attempts[attempt.number] = attempt
        self._by_name[attempt.name] = attempt
        attempt.task = self._spawn(self._run(attempt))

    def append(self, attempt: int, piece: EngineInput) -> None:
        """Never called: the engine takes no streamed input."""
        raise AssertionError("no streamed input")

    def close_input(self, attempt: int) -> None:
        """Never called: the engine takes no streamed input."""
        raise AssertionError("no streamed input")

    def abort(self, attempt: int) -> None:
        """Take an attempt out of vLLM's batch before its next step."""
        found = self._attempts.get(attempt)
        if found and not found.aborted:
            found.aborted = True
            self._spawn(self._abort(found))

    def outputs(self) -> AsyncIterator[list[Piece]]:
        """Yield what each engine step made."""
        return self._steps.read()

    async def control(self, call: Call) -> Answer:
        """Carry out a control call on vLLM."""
        assert self._controls is not None
        return await self._controls.carry_out(call)

    def load_report(self) -> LoadReport:
        """Tell how many attempts are in vLLM's hands."""
        return LoadReport(running=len(self._attempts), waiting=0, steps=self._steps.count)

    async def close(self) -> None:
        """Stop vLLM and its processes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for attempt in list(self._attempts.values()):
            self._fail(attempt, error_for("aborted"))
        await asyncio.get_running_loop().run_in_executor(self._thread, self._stop)
        self._thread.shutdown()
        self._steps.close()

    def _start(self, folder: Path) -> AsyncLLM:
        options = self._options.engine_args(**_platform())
        self._scratch = Scratch("vllm")
        with environment(_surroundings(self._scratch.path)):
            self._llm = AsyncLLM.from_engine_args(
                AsyncEngineArgs(model=str(folder), disable_log_stats=True, **options)
            )
        self._scratch.note_shared_memory()
        return self._llm

    def _stop(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()
        if self._scratch is not None:
            self._scratch.close()

    async def _run(self, attempt: Attempt) -> None:
        """Give an attempt to vLLM; only what breaks the engine as a whole leaves it."""
        assert self._llm is not None
        assert self._controls is not None
        loop = asyncio.get_running_loop()
        try:
            lora = self._controls.lora_of(attempt.work.adapter)
            prompt = await loop.run_in_executor(self._thread, self._encode, attempt.work.input)
            attempt.prompt_tokens = len(prompt)
            given, params = tokens_input(prompt), self._sampling(attempt.work, len(prompt))
            if self._sink is not None and attempt.begun:
                await self._go_on(attempt, self._sink, given, params, lora)
                return
            if self._sink is not None:
                await submit(self._llm, self._sink, attempt.name, given, params, lora=lora)
                return
            name = attempt.name
            outputs = self._llm.generate(given, params, request_id=name, lora_request=lora)
            async for output in outputs:
                self._take([output])
        except MeshError as error:
            self._fail(attempt, error.info)
        except (VLLMClientError, ValueError) as error:
            self._fail(attempt, _refusal(error))
        except Exception as error:  # A tokenizer or a template may raise anything.
            if self._llm.errored:
                raise
            ids = {"request_id": attempt.work.request_id}
            _log.exception("an attempt failed", extra=ids)
            message = f"the engine failed: {type(error).__name__}"
            self._fail(attempt, error_for("engine_error", message))

    async def _go_on(
        self, attempt: Attempt, sink: StepSink, given: Any, params: SamplingParams, lora: Any
    ) -> None:
        """Go on after tokens that were made elsewhere, or end where they end the answer."""
        # To vLLM's core the tokens are the prompt's, for which these do not count.
        refuse_uncounted(attempt.work.params.sampling, "frequency_penalty", "presence_penalty")
        over = await go_on(
            self._llm, sink, attempt.name, given, params, lora=lora, begun=attempt.begun
        )
        if over is None:
            return
        rest, stop_match, last_word = over
        finish = FinishReason.STOP if stop_match or last_word else FinishReason.LENGTH
        self._forget(attempt)
        end = attempt.end(finish, stop_match)
        self._steps.put([Piece(attempt=attempt.number, text=rest, end=end)])

    async def _abort(self, attempt: Attempt) -> None:
        assert self._llm is not None
        attempt.task.cancel()  # It may not have reached vLLM yet, and must not after this.
        await asyncio.wait({attempt.task})
        await self._llm.abort(attempt.name)
        self._fail(attempt, error_for("aborted"))

    def _take(self, outputs: list[Any]) -> None:
        """Turn what one engine step made into pieces."""
        pieces = []
        for output in outputs:
            if isinstance(output, BaseException):
                self._steps.fail(output)
                continue
            attempt = self._by_name.get(output.request_id)
            if attempt is not None and not attempt.aborted:
                pieces.append(attempt.take(output))
                if output.finished:
                    self._forget(attempt)
        self._steps.put(pieces)

    def _fail(self, attempt: Attempt, info: ErrorInfo) -> None:
        """Give an attempt its last piece, unless it has had it."""
        if self._attempts.get(attempt.number) is attempt:
            self._forget(attempt)
            last = Piece(attempt=attempt.number, end=attempt.usage_end(), error=info)
            self._steps.put([last])

    def _forget(self, attempt: Attempt) -> None:
        del self._attempts[attempt.number]
        del self._by_name[attempt.name]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._steps.fail(error)  # Broken as a whole: the worker ends and is restarted.

    def _encode(self, given: EngineInput) -> list[int]:
        match given:
            case ChatInput(messages=messages):
                plain = plain_messages(messages)
            case TextInput(text=text):
                return list(self._tokenizer.encode(text))
            case _:
                raise unsupported("this model reads text only", reason="unsupported_modality")
        try:
            ids = self._tokenizer.apply_chat_template(
                plain, add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except TemplateError as error:
            message = f"the model's chat template refused: {error}"
            raise invalid(message, param="messages") from error
        return list(ids)

    def _sampling(self, work: Work, prompt_tokens: int) -> SamplingParams:
        sampling = work.params.sampling
        tokens_max = answer_tokens_max(
            sampling, prompt_tokens=prompt_tokens, context_tokens_max=self._context_max
        )
        begun = len(work.resume.token_ids) if work.resume else 0
        return SamplingParams(
            max_tokens=tokens_max,
            min_tokens=min(sampling.tokens_min or 0, tokens_max),
            seed=seed_after(work.seed, begun) if work.seed_explicit else None,
            ignore_eos=bool(sampling.ignore_eos),
            stop=list(sampling.stop) or None,
            output_kind=RequestOutputKind.DELTA,
            **_given(sampling),
        )


def _platform() -> dict[str, bool]:
    """Say what this platform can do of what a pool may ask for.

    vLLM's kernels for the CPU take the index -1, which stands for no adapter, for the last one: an
    attempt without an adapter in one batch with an attempt that has one gets it too (seen in
    0.32.0).
    """
    can_sleep = bool(current_platform.is_sleep_mode_available())
    return {"can_sleep": can_sleep, "can_adapt": not current_platform.is_cpu()}


def _lora(loaded: Loaded) -> LoRARequest:
    return LoRARequest(loaded.adapter.name, loaded.number, str(loaded.folder))


def _given(sampling: Sampling) -> dict[str, Any]:
    names = (
        "temperature", "top_p", "top_k", "min_p",
        "frequency_penalty", "presence_penalty", "repetition_penalty",
    )  # fmt: skip
    values = {name: getattr(sampling, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _refusal(error: Exception) -> ErrorInfo:
    """Say what vLLM has against a request, with the field where it names one."""
    message = str(error.args[0]) if error.args else str(error)
    return invalid(message, param=getattr(error, "parameter", None) or "").info


def _surroundings(scratch: Path) -> dict[str, str]:
    """Give the variables that vLLM's processes start with; the user's own settings come first."""
    temporary = tempfile.gettempdir()
    ours = {
        "HF_HUB_OFFLINE": "1",
        # Compiled kernels outlive a worker, so they must not land in its scratch folder.
        "TORCHINDUCTOR_CACHE_DIR": f"{temporary}/torchinductor_{getpass.getuser()}",
        "VLLM_NO_USAGE_STATS": "1",
        # A process with gRPC's threads cannot be forked.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    return {
        **{name: value for name, value in ours.items() if name not in os.environ},
        children.VARIABLE: "1",
        "TMPDIR": str(scratch),
        "VLLM_RPC_BASE_PATH": str(scratch),
    }
