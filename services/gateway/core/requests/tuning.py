"""`stage_params`: what a client tunes at one stage of a pipeline, by the stage's name.

A field of ours, in every body: `{"talker": {"sampling": {"temperature": 0.7}}}`, with the groups
and names of `params` in a mesh file. Which stages there are nobody knows here.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from services.gateway.core.requests.decoding import Body, Natural, decode_json
from stagemesh.errors import MeshError, invalid
from stagemesh.media import STAGES_MAX, AudioParams, ImageParams, Params, Sampling
from stagemesh.outcome import ErrorInfo

__all__ = ["StageParams", "parse_stage_params", "read_stage_params"]

StageParams = dict[str, msgspec.Raw]
"""The field as a body has it; each stage is read by itself, so that an error can name it."""


class _Sampling(Body, frozen=True):
    tokens_max: Natural | None = None
    tokens_min: Natural | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Natural | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None


class _Audio(Body, frozen=True):
    voice: str | None = None
    speed: float | None = None
    language: str | None = None


class _Image(Body, frozen=True):
    width: Natural | None = None
    height: Natural | None = None
    steps: Natural | None = None
    guidance_scale: float | None = None
    negative_prompt: str | None = None


class _Stage(Body, frozen=True):
    sampling: _Sampling | None = None
    audio: _Audio | None = None
    image: _Image | None = None


_DECODER: Final = msgspec.json.Decoder(_Stage)
_STAGES: Final = msgspec.json.Decoder(StageParams | None)


def read_stage_params(stages: StageParams | None) -> Mapping[str, Params]:
    """Read what is tuned at each stage; nothing, an empty object and null all tune nothing.

    Raises:
        MeshError: If something is unknown or of the wrong type; `param` names it.
    """
    if stages is not None and len(stages) > STAGES_MAX:
        raise invalid(f"There may be at most {STAGES_MAX} stages.", param="stage_params")
    return {name: _stage(name, raw) for name, raw in (stages or {}).items()}


def parse_stage_params(text: str | None) -> Mapping[str, Params]:
    """Read the field of a form, where it is JSON in a text.

    Raises:
        MeshError: As `read_stage_params`, or if it is no JSON object.
    """
    if text is None:
        return {}
    try:
        stages = _STAGES.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise invalid(
            "'stage_params' must be a JSON object of stages.",
            param="stage_params",
            reason="invalid_type",
        ) from None
    return read_stage_params(stages)


def _stage(name: str, raw: msgspec.Raw) -> Params:
    place, data = f"stage_params.{name}", bytes(raw)
    if data == b"null":
        return Params()
    try:
        body = decode_json(_DECODER, data)
    except MeshError as error:
        raise MeshError(_within(error, place)) from None
    sampling, audio, image = body.sampling, body.audio, body.image
    params = Params()
    if sampling is not None:
        stop = sampling.stop
        values = msgspec.structs.asdict(sampling)
        values["stop"] = (stop,) if isinstance(stop, str) else tuple(stop or ())
        params = msgspec.structs.replace(params, sampling=Sampling(**values))
    if audio is not None:
        values = msgspec.structs.asdict(audio)
        params = msgspec.structs.replace(params, audio=AudioParams(**values))
    if image is not None:
        values = msgspec.structs.asdict(image)
        params = msgspec.structs.replace(params, image=ImageParams(**values))
    return params


def _within(error: MeshError, place: str) -> ErrorInfo:
    """Say of an error in a part where the part stands."""
    info = error.info
    full = f"{place}.{info.param}" if info.param else place
    said = f"'{info.param}'" if info.param else "the body"
    return msgspec.structs.replace(
        info, param=full, message=info.message.replace(said, f"'{full}'", 1)
    )
