"""The door: what every request must satisfy, whoever sent it.

An error names the field as clients write it. A number that is not a number (NaN) is out of range.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from services.orchestrator.core.plan import Plan, Planner
from services.orchestrator.core.settings import DoorLimits
from stagemesh.errors import MeshError, invalid, unsupported
from stagemesh.media import MediaPart, Message, Modality, Params, Request, TextPart
from stagemesh.outcome import error_for
from stagemesh.pipeline import Mesh, Pipeline

__all__ = ["Door", "request_bytes"]


class _Range(NamedTuple):
    param: str
    low: float
    high: float
    above_low: bool = False

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above_low and value == self.low)

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above_low else f"at least {self.low:g}"
        return low if self.high == _NO_LIMIT else f"{low} and at most {self.high:g}"


_NO_LIMIT: Final = float(2**32 - 1)
_ROLES: Final = frozenset({"assistant", "developer", "system", "tool", "user"})

_SAMPLING: Final[Mapping[str, _Range]] = {
    "tokens_max": _Range("max_completion_tokens", 1, _NO_LIMIT),
    "tokens_min": _Range("min_tokens", 0, _NO_LIMIT),
    "temperature": _Range("temperature", 0, 2),
    "top_p": _Range("top_p", 0, 1, above_low=True),
    "top_k": _Range("top_k", 0, _NO_LIMIT),
    "min_p": _Range("min_p", 0, 1),
    "frequency_penalty": _Range("frequency_penalty", -2, 2),
    "presence_penalty": _Range("presence_penalty", -2, 2),
    "repetition_penalty": _Range("repetition_penalty", 0, 2, above_low=True),
}
_AUDIO: Final[Mapping[str, _Range]] = {"speed": _Range("speed", 0.25, 4)}


class Door:
    """Checks requests against a mesh, and plans what it lets in."""

    def __init__(self, mesh: Mesh, limits: DoorLimits) -> None:
        self._limits = limits
        self._planner = Planner()
        self._models = {
            model: pipeline
            for pipeline in mesh.pipelines.values()
            for model in (pipeline.name, *pipeline.aliases)
        }
        self._image: Mapping[str, _Range] = {
            "width": _Range("size", limits.image_side_min, limits.image_side_max),
            "height": _Range("size", limits.image_side_min, limits.image_side_max),
            "steps": _Range("steps", 1, limits.image_steps_max),
            "guidance_scale": _Range("guidance_scale", 0, 20),
        }

    def enter(
        self, request: Request, *, context_tokens: Mapping[str, int], streamed: bool = False
    ) -> Plan:
        """Check a request and plan it; `context_tokens` says how much each pool's engine holds.

        A `streamed` request may have no messages, and may yet give whatever its pipeline takes;
        where no stage hears its client, all that it gives is its messages.

        Raises:
            MeshError: If the request cannot be served; the first thing wrong is named.
        """
        pipeline = self._pipeline(request.model)
        streamed = streamed and any(stage.streamed for stage in pipeline.stages)
        self._check_messages(request.messages, may_be_empty=streamed)
        _check_inputs(request, pipeline)
        self._check_params(request.params)
        if not 1 <= request.choices <= self._limits.choices_max:
            raise invalid(
                f"Must be at least 1 and at most {self._limits.choices_max}, "
                f"not {request.choices}.",
                param="n",
            )
        plan = self._planner.plan(
            pipeline,
            modalities=request.modalities,
            choices=request.choices,
            inputs=pipeline.inputs if streamed else request.input_modalities & pipeline.inputs,
            streamed=streamed,
        )
        _check_tokens(request.params, plan, context_tokens)
        return plan

    def _pipeline(self, model: str) -> Pipeline:
        pipeline = self._models.get(model)
        if pipeline is None:
            shown = model[: self._limits.word_chars_max]
            raise MeshError(
                error_for("model_not_found", f"There is no model {shown!r}.", param="model")
            )
        return pipeline

    def _check_messages(self, messages: tuple[Message, ...], *, may_be_empty: bool) -> None:
        if not (may_be_empty or any(message.parts for message in messages)):
            raise invalid("There must be at least one message with content.", param="messages")
        if len(messages) > self._limits.messages_max:
            raise invalid(
                f"There may be at most {self._limits.messages_max} messages.", param="messages"
            )
        chars = 0
        for at, message in enumerate(messages):
            if message.role not in _ROLES:
                known = ", ".join(sorted(_ROLES))
                raise invalid(f"Must be one of {known}.", param=f"messages[{at}].role")
            chars += sum(len(part.text) for part in message.parts if isinstance(part, TextPart))
        self._check_size("messages", chars)

    def _check_size(self, param: str, chars: int) -> None:
        if chars > self._limits.text_chars_max:
            what = f"Text may have at most {self._limits.text_chars_max} characters, not {chars}."
            raise MeshError(error_for("body_too_large", what, param=param))

    def _check_params(self, params: Params) -> None:
        _check_ranges(params.sampling, _SAMPLING)
        _check_ranges(params.audio, _AUDIO)
        _check_ranges(params.image, self._image)
        self._check_stops(params.sampling.stop)
        image = params.image
        if image.width is not None and image.height is not None:
            pixels = image.width * image.height
            if pixels > self._limits.image_pixels_max:
                most = self._limits.image_pixels_max
                raise invalid(
                    f"An image may have at most {most} pixels, not {pixels}.", param="size"
                )
        self._check_size("negative_prompt", len(image.negative_prompt or ""))
        for param, word in (("voice", params.audio.voice), ("language", params.audio.language)):
            if word is not None and len(word) > self._limits.word_chars_max:
                raise invalid(
                    f"May have at most {self._limits.word_chars_max} characters.", param=param
                )

    def _check_stops(self, stops: tuple[str, ...]) -> None:
        limits = self._limits
        if len(stops) > limits.stops_max:
            raise invalid(f"There may be at most {limits.stops_max} stop strings.", param="stop")
        if not all(0 < len(stop) <= limits.stop_chars_max for stop in stops):
            raise invalid(
                f"A stop string has at least 1 and at most {limits.stop_chars_max} characters.",
                param="stop",
            )


def request_bytes(request: Request) -> int:
    """Tell how much memory a request's content takes here, in bytes; handles take none."""
    return sum(
        len(part.body.inline) if isinstance(part, MediaPart) else len(part.text)
        for message in request.messages
        for part in message.parts
    )


def _check_ranges(values: object, ranges: Mapping[str, _Range]) -> None:
    for field, allowed in ranges.items():
        value = getattr(values, field)
        if value is not None and not allowed.holds(value):
            raise invalid(f"Must be {allowed}, not {value:g}.", param=allowed.param)


def _check_inputs(request: Request, pipeline: Pipeline) -> None:
    for message in request.messages:
        for part in message.parts:
            modality = part.modality if isinstance(part, MediaPart) else Modality.TEXT
            if modality not in pipeline.inputs:
                param = part.param if isinstance(part, MediaPart) else ""
                raise unsupported(
                    f"{pipeline.name} takes no {modality.name.lower()}.",
                    param=param or "messages",
                    reason="unsupported_modality",
                )


def _check_tokens(params: Params, plan: Plan, context_tokens: Mapping[str, int]) -> None:
    """Check the wanted lengths against each other, the stages' defaults and the engines."""
    wish = params.sampling
    if wish.tokens_max is None and wish.tokens_min is None:
        return
    for group in plan.groups:
        default = group.stage.params.sampling
        most = default.tokens_max if wish.tokens_max is None else wish.tokens_max
        least = default.tokens_min if wish.tokens_min is None else wish.tokens_min
        if most is not None and least is not None and least > most:
            at_fault = "max_completion_tokens" if wish.tokens_min is None else "min_tokens"
            raise invalid(
                f"At least {least} and at most {most} tokens are asked for.", param=at_fault
            )
        room = context_tokens.get(group.stage.pool, 0)
        asked = max(wish.tokens_max or 0, wish.tokens_min or 0)
        if room and asked > room:
            raise invalid(
                f"The model's context holds {room} tokens; {asked} are asked for.",
                param="max_completion_tokens",
                reason="context_length_exceeded",
            )
