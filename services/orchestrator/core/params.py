"""What clients may tune, and within which ranges: for a request as a whole, and stage by stage.

An error names the field as clients write it: `temperature`, or, where a stage was named,
`stage_params.talker.sampling.temperature`. A number that is not a number (NaN) is out of range.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from services.orchestrator.core.plan import Plan
from services.orchestrator.core.settings import DoorLimits
from stagemesh.errors import MeshError, invalid, unsupported
from stagemesh.media import Params, Request
from stagemesh.outcome import error_for
from stagemesh.pipeline import Pipeline, Stage, effective_params, wished_fields

__all__ = ["ParamRules", "check_engines", "check_lengths"]


class _Range(NamedTuple):
    low: float
    high: float
    above_low: bool = False

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above_low and value == self.low)

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above_low else f"at least {self.low:g}"
        return low if self.high == _NO_LIMIT else f"{low} and at most {self.high:g}"


_NO_LIMIT: Final = float(2**32 - 1)

_PUBLIC: Final[Mapping[str, str]] = {
    "sampling.tokens_max": "max_completion_tokens",
    "sampling.tokens_min": "min_tokens",
    "image.width": "size",
    "image.height": "size",
}
"""What clients call fields that have another name here."""


class ParamRules:
    """Checks what a request tunes."""

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits
        self._ranges: Mapping[str, _Range] = {
            "sampling.tokens_max": _Range(1, _NO_LIMIT),
            "sampling.tokens_min": _Range(0, _NO_LIMIT),
            "sampling.temperature": _Range(0, 2),
            "sampling.top_p": _Range(0, 1, above_low=True),
            "sampling.top_k": _Range(0, _NO_LIMIT),
            "sampling.min_p": _Range(0, 1),
            "sampling.frequency_penalty": _Range(-2, 2),
            "sampling.presence_penalty": _Range(-2, 2),
            "sampling.repetition_penalty": _Range(0, 2, above_low=True),
            "audio.speed": _Range(0.25, 4),
            "image.width": _Range(limits.image_side_min, limits.image_side_max),
            "image.height": _Range(limits.image_side_min, limits.image_side_max),
            "image.steps": _Range(1, limits.image_steps_max),
            "image.guidance_scale": _Range(0, 20),
        }

    def check(self, request: Request, pipeline: Pipeline) -> None:
        """Check every field by itself, and that every stage that is named is there.

        Raises:
            MeshError: If one is out of its range, or names what is not there.
        """
        self._check_values(request.params, "")
        stages = {stage.name for stage in pipeline.stages}
        for name, params in request.stage_params.items():
            shown = name[: self._limits.word_chars_max]
            if name not in stages:
                raise invalid(
                    f"{pipeline.name} has no stage {shown!r}.",
                    param=f"stage_params.{shown}",
                    reason="unknown_parameter",
                )
            self._check_values(params, name)

    def _check_values(self, params: Params, stage: str) -> None:
        for group, values in (
            ("sampling", params.sampling),
            ("audio", params.audio),
            ("image", params.image),
        ):
            for field in values.__struct_fields__:
                value, place = getattr(values, field), f"{group}.{field}"
                allowed = self._ranges.get(place)
                if value is not None and allowed is not None and not allowed.holds(value):
                    raise invalid(f"Must be {allowed}, not {value:g}.", param=_param(place, stage))
        self._check_stops(params.sampling.stop, _param("sampling.stop", stage))
        image = params.image
        if image.width is not None and image.height is not None:
            pixels, most = image.width * image.height, self._limits.image_pixels_max
            if pixels > most:
                raise invalid(
                    f"An image may have at most {most} pixels, not {pixels}.",
                    param=_param("image.width", stage),
                )
        self._check_words(params, stage)

    def _check_words(self, params: Params, stage: str) -> None:
        limits = self._limits
        chars = len(params.image.negative_prompt or "")
        if chars > limits.text_chars_max:
            what = f"Text may have at most {limits.text_chars_max} characters, not {chars}."
            param = _param("image.negative_prompt", stage)
            raise MeshError(error_for("body_too_large", what, param=param))
        for place, word in (
            ("audio.voice", params.audio.voice),
            ("audio.language", params.audio.language),
        ):
            if word is not None and len(word) > limits.word_chars_max:
                raise invalid(
                    f"May have at most {limits.word_chars_max} characters.",
                    param=_param(place, stage),
                )

    def _check_stops(self, stops: tuple[str, ...], param: str) -> None:
        limits = self._limits
        if len(stops) > limits.stops_max:
            raise invalid(f"There may be at most {limits.stops_max} stop strings.", param=param)
        if not all(0 < len(stop) <= limits.stop_chars_max for stop in stops):
            raise invalid(
                f"A stop string has at least 1 and at most {limits.stop_chars_max} characters.",
                param=param,
            )


def check_engines(
    request: Request, pipeline: Pipeline, takes: Mapping[str, frozenset[str]]
) -> None:
    """See that the engine of every stage that is named minds what is asked of it.

    `takes` says of pools which fields their engines mind; one that does not tell takes all.

    Raises:
        MeshError: If one does not.
    """
    for stage in pipeline.stages:
        wished = request.stage_params.get(stage.name)
        minded = takes.get(stage.pool)
        if wished is None or not minded:
            continue
        for field in wished_fields(wished):
            if field not in minded:
                raise unsupported(
                    f"The engine of {stage.name} has no {field}.",
                    param=_param(field, stage.name),
                    reason="unsupported_parameter",
                )


def check_lengths(request: Request, plan: Plan, context_tokens: Mapping[str, int]) -> None:
    """Check the wanted lengths against each other, the stages' defaults and the engines' contexts.

    Raises:
        MeshError: If they contradict each other, or are more than a context holds.
    """
    for stage in {group.stage.index: group.stage for group in plan.groups}.values():
        asked = _asked_lengths(request, stage)
        if not asked:
            continue
        sampling = effective_params(stage, request.params, request.stage_params).sampling
        least, most = sampling.tokens_min, sampling.tokens_max
        if most is not None and least is not None and least > most:
            param = asked.get("tokens_min") or asked["tokens_max"]
            raise invalid(f"At least {least} and at most {most} tokens are asked for.", param=param)
        room = context_tokens.get(stage.pool, 0)
        wanted = max(getattr(sampling, name) for name in asked)
        if room and wanted > room:
            raise invalid(
                f"The model's context holds {room} tokens; {wanted} are asked for.",
                param=asked.get("tokens_max") or asked["tokens_min"],
                reason="context_length_exceeded",
            )


def _asked_lengths(request: Request, stage: Stage) -> dict[str, str]:
    """Give the limits that the client set for a stage, and what it called each of them."""
    asked = {}
    own = request.stage_params.get(stage.name, Params()).sampling
    for name in ("tokens_min", "tokens_max"):
        if getattr(own, name) is not None:
            asked[name] = _param(f"sampling.{name}", stage.name)
        elif stage.comprehends and getattr(request.params.sampling, name) is not None:
            asked[name] = _param(f"sampling.{name}", "")
    return asked


def _param(place: str, stage: str) -> str:
    """Give a client's name of a field: of one stage, or of the request as a whole."""
    if stage:
        return f"stage_params.{stage}.{place}"
    return _PUBLIC.get(place, place.partition(".")[2])
