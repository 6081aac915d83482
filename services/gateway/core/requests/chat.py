"""`POST /v1/chat/completions`: OpenAI's body to the internal request."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from services.gateway.core.requests.content import ChatMessage, message_from
from services.gateway.core.requests.decoding import (
    NOTHING,
    Body,
    Natural,
    Ranking,
    Unserved,
    decode_json,
    refuse_unserved,
)
from services.gateway.core.requests.origin import Origin, Voice, model_name, voice_name
from services.gateway.core.requests.tuning import StageParams, read_stage_params
from stagemesh.errors import invalid, unsupported
from stagemesh.media import (
    MESSAGES_MAX,
    PARTS_MAX,
    AudioParams,
    Modality,
    Params,
    Request,
    Sampling,
)

__all__ = ["CHAT_EXTENSIONS", "CHAT_UNSERVED", "ChatBody", "ChatOrder", "read_chat"]

CHAT_EXTENSIONS: Final = (
    "ignore_eos", "min_p", "min_tokens", "repetition_penalty", "stage_params", "top_k",
)  # fmt: skip
"""Fields of the body that are ours and not OpenAI's."""

CHAT_UNSERVED: Final[dict[str, tuple[Any, ...]]] = {
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "moderation": (),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}
"""Fields that OpenAI knows and this build does not serve, with the values that ask for nothing."""


class _StreamOptions(Body, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _AudioOut(Body, frozen=True):
    voice: Voice | None = None
    format: str | None = None


class ChatBody(Body, frozen=True):
    """The body as OpenAI writes it, with our extensions last."""

    model: str
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    modalities: Annotated[list[Literal["text", "audio"]], msgspec.Meta(min_length=1)] | None = None
    audio: _AudioOut | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: Natural | None = None
    max_tokens: Natural | None = None
    max_completion_tokens: Natural | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    # What OpenAI takes as a label; nothing here depends on it.
    metadata: dict[str, str] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    # What OpenAI serves and we do not; see `CHAT_UNSERVED`.
    function_call: Unserved = NOTHING
    functions: Unserved = NOTHING
    logit_bias: Unserved = NOTHING
    logprobs: Unserved = NOTHING
    moderation: Unserved = NOTHING
    parallel_tool_calls: Unserved = NOTHING
    prediction: Unserved = NOTHING
    prompt_cache_options: Unserved = NOTHING
    prompt_cache_retention: Unserved = NOTHING
    reasoning_effort: Unserved = NOTHING
    response_format: Unserved = NOTHING
    service_tier: Unserved = NOTHING
    store: Unserved = NOTHING
    tool_choice: Unserved = NOTHING
    tools: Unserved = NOTHING
    top_logprobs: Unserved = NOTHING
    verbosity: Unserved = NOTHING
    web_search_options: Unserved = NOTHING
    # Ours; see `CHAT_EXTENSIONS`.
    ignore_eos: bool | None = None
    min_p: float | None = None
    min_tokens: Natural | None = None
    repetition_penalty: float | None = None
    stage_params: StageParams | None = None
    top_k: Ranking | None = None


class ChatOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A chat request, and how its answer is to be written."""

    request: Request
    stream: bool
    include_usage: bool
    audio_format: str
    """`pcm16` or `wav`; empty where no audio was asked for."""
    names: Mapping[str, str]
    """What this body calls the fields that errors may name, where it differs."""


_TOKENS: Final = "max_completion_tokens"
_NAMES: Final = {"voice": "audio.voice"}
_DECODER: Final = msgspec.json.Decoder(ChatBody)


def read_chat(raw: bytes | bytearray, origin: Origin) -> ChatOrder:
    """Turn a body into the internal request.

    Raises:
        MeshError: If the body is not what OpenAI allows, or asks for what is not served.
    """
    body = decode_json(_DECODER, raw)
    refuse_unserved(body, CHAT_UNSERVED)
    stream = bool(body.stream)
    if body.stream_options is not None and not stream:
        raise invalid("'stream_options' is only allowed with 'stream'.", param="stream_options")
    _check_counts(body)
    modalities = _modalities(body)
    voice = body.audio.voice if body.audio else None
    request = Request(
        model=model_name(body.model),
        messages=tuple(
            message_from(message, f"messages[{index}]")
            for index, message in enumerate(body.messages)
        ),
        modalities=modalities,
        params=Params(
            sampling=_sampling(body), audio=AudioParams(voice=voice_name(voice, "audio.voice"))
        ),
        stage_params=read_stage_params(body.stage_params),
        choices=_choices(body),
        seed=origin.seed if body.seed is None else body.seed % 2**64,
        seed_explicit=body.seed is not None,
        label=origin.label,
    )
    return ChatOrder(
        request=request,
        stream=stream,
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        audio_format=_audio_format(body, stream) if Modality.AUDIO in modalities else "",
        names=_NAMES if body.max_tokens is None else _NAMES | {_TOKENS: "max_tokens"},
    )


def _check_counts(body: ChatBody) -> None:
    """See that there is not more to convert than is worth anybody's time."""
    if len(body.messages) > MESSAGES_MAX:
        raise invalid(f"There may be at most {MESSAGES_MAX} messages.", param="messages")
    parts = sum(len(one.content) for one in body.messages if isinstance(one.content, list))
    if parts > PARTS_MAX:
        raise invalid(f"There may be at most {PARTS_MAX} parts in all.", param="messages")


def _choices(body: ChatBody) -> int:
    if body.n == 0:
        # On the wire 0 means 1, so the door could not see it.
        raise invalid("'n' must be at least 1.", param="n")
    return body.n or 1


def _modalities(body: ChatBody) -> tuple[Modality, ...]:
    names = body.modalities or ["text"]
    return tuple(
        modality for modality in (Modality.TEXT, Modality.AUDIO) if modality.name.lower() in names
    )


def _sampling(body: ChatBody) -> Sampling:
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise invalid(
            "'max_tokens' and 'max_completion_tokens' contradict each other.", param="max_tokens"
        )
    stop = body.stop
    return Sampling(
        tokens_max=next(iter(limits), None),
        tokens_min=body.min_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=None if body.top_k is None else max(0, body.top_k),
        min_p=body.min_p,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=body.repetition_penalty,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        ignore_eos=body.ignore_eos,
    )


def _audio_format(body: ChatBody, stream: bool) -> str:
    """Choose how audio is written: a stream has no place for a header with sizes."""
    served = ("pcm16",) if stream else ("wav", "pcm16")
    wanted = body.audio.format if body.audio else None
    if wanted is None:
        return served[0]
    if wanted not in served:
        raise unsupported(
            f"Audio is given as {' or '.join(served)} here, not as '{wanted}'.",
            param="audio.format",
        )
    return wanted
