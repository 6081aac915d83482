"""Hypothesis strategies for the plain values that cross the wire."""

from typing import Any

from hypothesis import strategies as st

from stagemesh.media import (
    AudioParams,
    Body,
    Handle,
    ImageParams,
    MediaPart,
    Message,
    Modality,
    Params,
    Request,
    Sampling,
    TextPart,
)
from stagemesh.outcome import (
    End,
    ErrorCode,
    ErrorInfo,
    FinishReason,
    Outcome,
    Terminal,
    Timings,
    Usage,
)
from stagemesh.wire import CapabilitiesValue, LaneMark, PublishedModelValue

uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
reals = st.floats(allow_nan=False)
# Surrogates are no text, and protobuf refuses them.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
modality = st.sampled_from(Modality)
modality_sets = st.frozensets(modality)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values that may be unset."""
    return st.none() | strategy


handles = st.builds(
    Handle,
    handle_id=text,
    request_id=text,
    holder_id=text,
    incarnation=uint64,
    address=text,
    probe=text,
    size_bytes=uint64,
    digest=st.binary(max_size=16),
)
_described = {
    "media_type": text,
    "sample_rate_hz": uint32,
    "channels": st.integers(1, 2**32 - 1),
    "shape": st.lists(uint32, max_size=4).map(tuple),
    "dtype": text,
}
bodies = st.builds(Body, inline=st.binary(max_size=64), **_described) | st.builds(
    Body, handle=handles, **_described
)

parts = st.builds(TextPart, text) | st.builds(MediaPart, modality=modality, body=bodies, param=text)
messages = st.builds(Message, role=text, parts=st.lists(parts, max_size=3).map(tuple), name=text)
params = st.builds(
    Params,
    sampling=st.builds(
        Sampling,
        tokens_max=maybe(uint32),
        tokens_min=maybe(uint32),
        temperature=maybe(reals),
        top_p=maybe(reals),
        top_k=maybe(uint32),
        min_p=maybe(reals),
        frequency_penalty=maybe(reals),
        presence_penalty=maybe(reals),
        repetition_penalty=maybe(reals),
        stop=st.lists(text, max_size=3).map(tuple),
        ignore_eos=maybe(st.booleans()),
    ),
    audio=st.builds(AudioParams, voice=maybe(text), speed=maybe(reals), language=maybe(text)),
    image=st.builds(
        ImageParams,
        width=maybe(uint32),
        height=maybe(uint32),
        steps=maybe(uint32),
        guidance_scale=maybe(reals),
        negative_prompt=maybe(text),
    ),
)
requests = st.builds(
    Request,
    model=text,
    messages=st.lists(messages, max_size=3).map(tuple),
    modalities=st.lists(modality, max_size=3).map(tuple),
    params=params,
    choices=st.integers(1, 2**32 - 1),
    seed=uint64,
    seed_explicit=st.booleans(),
    label=text,
    tenant=text.filter(bool),
)

usages = st.builds(
    Usage,
    prompt_tokens=uint64,
    cached_tokens=uint64,
    completion_tokens=uint64,
    audio_input_samples=uint64,
    audio_output_samples=uint64,
    images=uint64,
    complete=st.booleans(),
)
timings = st.builds(
    Timings,
    queue_s=reals,
    first_output_s=reals,
    compute_s=reals,
    total_s=reals,
    transfer_s=reals,
)
errors = st.builds(
    ErrorInfo,
    code=st.sampled_from(ErrorCode),
    reason=text,
    message=text,
    stage=text,
    pool=text,
    replica_id=text,
    attempt=uint32,
    retryable=st.booleans(),
    retry_after_s=maybe(reals),
    param=text,
)
ends = st.builds(
    End,
    finish_reason=st.sampled_from(FinishReason),
    stop_match=text,
    usage=usages | st.just(Usage()),
    timings=timings | st.just(Timings()),
)
terminals = st.builds(
    Terminal,
    outcome=st.sampled_from(Outcome),
    error=maybe(errors),
    usage=usages | st.just(Usage()),
    timings=timings | st.just(Timings()),
)

capabilities = st.builds(
    CapabilitiesValue,
    input_modalities=modality_sets,
    output_modalities=modality_sets,
    stream_input=st.booleans(),
    stream_output=st.booleans(),
    resume_contract=st.integers(0, 5),
    deterministic=st.booleans(),
    slots=uint32,
    context_tokens_max=uint32,
)
published = st.builds(
    PublishedModelValue,
    model=text,
    revision=text,
    ready=st.booleans(),
    input_modalities=modality_sets,
    output_modalities=modality_sets,
    deadline_s=reals,
)
lane_marks = st.builds(
    LaneMark,
    lane=uint32,
    pos=uint64,
    token_ids=st.lists(uint32, max_size=5).map(tuple),
    digest=st.binary(max_size=16),
    end=maybe(ends),
)
# Struct holds doubles: integers beyond 53 bits would not come back.
_json_leaf = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text
json_options = st.dictionaries(
    text,
    st.recursive(
        _json_leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
