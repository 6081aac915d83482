"""Language models on CTranslate2: the engine that starts in a second, without torch.

Every attempt is one generation of its own in a thread, which calls back for each token; there is no
continuous batching. CTranslate2 draws from one random stream for all generations, so a seed does
not make a sampled answer repeatable here. An answer that was begun elsewhere goes on as if its
tokens were the end of the prompt.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import ctranslate2
import msgspec
from tokenizers import Tokenizer

from services.stage_worker.engines.base import (
    Capabilities,
    ChatInput,
    EngineConfig,
    EngineInput,
    ModelCard,
    Piece,
    ResumeContract,
    TextInput,
    Work,
)
from services.stage_worker.engines.support.chat_template import ChatTemplate
from services.stage_worker.engines.support.context import answer_tokens_max
from services.stage_worker.engines.support.job import Job
from services.stage_worker.engines.support.options import Count, read_options
from services.stage_worker.engines.support.resuming import refuse_uncounted
from services.stage_worker.engines.support.threaded import Give, ThreadedEngine
from services.stage_worker.engines.support.token_text import TokenText
from services.stage_worker.engines.support.weights import locate
from stagemesh.errors import invalid, unsupported
from stagemesh.media import Modality, Sampling
from stagemesh.outcome import End, FinishReason, Usage

__all__ = ["CTranslate2Engine", "Options", "create"]


_PARAMS: Final = frozenset(
    {
        "sampling.ignore_eos",
        "sampling.repetition_penalty",
        "sampling.stop",
        "sampling.temperature",
        "sampling.tokens_max",
        "sampling.tokens_min",
        "sampling.top_k",
        "sampling.top_p",
    }
)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mesh file may set under `options`; `threads` is for each attempt."""

    slots: Count = 4
    threads: Count = 1
    max_model_len: Count = 2048
    compute_type: str = "auto"


def create(config: EngineConfig) -> "CTranslate2Engine":
    """Make the engine that the mesh file describes."""
    return CTranslate2Engine(config, read_options(config, Options))


class CTranslate2Engine(ThreadedEngine):
    """One converted language model."""

    def __init__(self, config: EngineConfig, options: Options) -> None:
        super().__init__(config, slots=options.slots, threads=options.slots)
        self._options = options

    @property
    def capabilities(self) -> Capabilities:
        """Text in, tokens out."""
        return Capabilities(
            input_modalities=frozenset({Modality.TEXT}),
            output_modalities=frozenset({Modality.TEXT}),
            stream_input=False,
            stream_output=True,
            resume_contract=ResumeContract.TOKENS,
            deterministic=False,
            slots=self.slots,
            context_tokens_max=self._options.max_model_len,
            params=_PARAMS,
        )

    def load_model(self, progress: Callable[[str], None]) -> ModelCard:
        """Load weights, tokenizer and chat template; takes well under a second."""
        weights = locate(self.config.model, "ct2-int8")
        progress(f"loading {weights.name}")
        folder = weights.path
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._template = ChatTemplate.of_folder(folder)
        self._generator = ctranslate2.Generator(
            str(folder),
            device="auto",
            compute_type=self._options.compute_type,
            inter_threads=self._options.slots,
            intra_threads=self._options.threads,
        )
        config = msgspec.json.decode((folder / "generation_config.json").read_bytes())
        eos = config.get("eos_token_id", [])
        self._eos_ids = frozenset(eos if isinstance(eos, list) else [eos])
        warm = self._encode(TextInput(text="Hello"))
        self._generator.generate_batch([warm], max_length=2, include_prompt_in_result=False)
        return ModelCard(model=weights.name, digest=weights.digest)

    def accept(self, work: Work) -> None:
        """Refuse ways of drawing that CTranslate2 does not have."""
        for name in ("frequency_penalty", "presence_penalty", "min_p"):
            if getattr(work.params.sampling, name):
                raise unsupported(f"this engine has no {name}", param=name)
        if "" in work.params.sampling.stop:
            raise invalid("stop cannot contain an empty string", param="stop")
        # Its penalty counts what this generation has made, and knows nothing of a prompt.
        if work.resume and work.params.sampling.repetition_penalty != 1.0:
            refuse_uncounted(work.params.sampling, "repetition_penalty")

    def run(self, jobs: list[Job], give: Give) -> None:
        """Generate one answer; each token is a step."""
        (job,) = jobs
        sampling = job.work.params.sampling
        prompt = self._encode(job.work.input)
        tokens_max = answer_tokens_max(
            sampling,
            prompt_tokens=len(prompt),
            context_tokens_max=self._options.max_model_len,
        )
        eos_ids = frozenset() if sampling.ignore_eos else self._eos_ids
        answer = _Answer(job, TokenText(self._tokenizer, sampling.stop), len(prompt), tokens_max)
        begun = job.work.resume.token_ids if job.work.resume else ()
        if (last := answer.begin(begun, eos_ids)) is not None:
            give([last])
            return

        def on_token(result: Any) -> bool:  # In CTranslate2's thread; True stops the generation.
            give([answer.take(result.token_id, ends=result.token_id in eos_ids)])
            return job.ended

        self._generator.generate_batch(
            [prompt + [self._tokenizer.id_to_token(token_id) for token_id in begun]],
            include_prompt_in_result=False,
            max_length=tokens_max - len(begun),
            min_length=max(0, min(sampling.tokens_min or 0, tokens_max) - len(begun)),
            end_token=sorted(eos_ids),
            repetition_penalty=sampling.repetition_penalty or 1.0,
            callback=on_token,
            **_drawing(sampling),
        )

    def _encode(self, given: EngineInput) -> list[str]:
        match given:
            case ChatInput(messages=messages):
                text = self._template.render(messages)
            case TextInput(text=text):
                pass
            case _:
                raise unsupported("this model reads text only", reason="unsupported_modality")
        return list(self._tokenizer.encode(text, add_special_tokens=False).tokens)


class _Answer:
    """Makes the pieces of one attempt from its tokens."""

    def __init__(self, job: Job, text: TokenText, prompt_tokens: int, tokens_max: int) -> None:
        self._job = job
        self._text = text
        self._prompt_tokens = prompt_tokens
        self._tokens_max = tokens_max
        self._tokens = 0

    def begin(self, token_ids: Sequence[int], eos_ids: frozenset[int]) -> Piece | None:
        """Go on after tokens that were delivered; give the last piece if they end the answer."""
        for token_id in token_ids:
            self._text.push(token_id)
        self._tokens = len(token_ids)
        end = None
        if token_ids:
            self._job.usage = self._usage()
            end = self._end(ends=token_ids[-1] in eos_ids)
        if end is None:
            return None
        text = "" if end.stop_match else self._text.flush()
        return Piece(attempt=self._job.work.attempt, text=text, end=end)

    def take(self, token_id: int, *, ends: bool) -> Piece:
        """Make the piece of one token; `ends` if the model says that its answer is complete."""
        self._tokens += 1
        self._job.usage = self._usage()
        text = self._text.push(token_id)
        end = self._end(ends=ends)
        if end is not None and not end.stop_match:
            text += self._text.flush()
        return Piece(attempt=self._job.work.attempt, units=1, text=text, ids=[token_id], end=end)

    def _usage(self) -> Usage:
        return Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._tokens)

    def _end(self, *, ends: bool) -> End | None:
        """Make the end, if the last token is one: by the model's word, a stop string or a limit."""
        match = self._text.stop_match
        if not (match or ends or self._tokens >= self._tokens_max):
            return None
        finish = FinishReason.STOP if match or ends else FinishReason.LENGTH
        return End(finish_reason=finish, stop_match=match, usage=self._job.usage)


def _drawing(sampling: Sampling) -> dict[str, Any]:
    """Say how tokens are drawn; a temperature of 0 takes the likeliest."""
    temperature = 1.0 if sampling.temperature is None else sampling.temperature
    if temperature == 0:
        return {"sampling_topk": 1}
    return {
        "sampling_topk": sampling.top_k or 0,
        "sampling_topp": sampling.top_p or 1.0,
        "sampling_temperature": temperature,
    }
