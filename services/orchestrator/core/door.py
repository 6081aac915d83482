"""The door: what every request must satisfy, whoever sent it.

An error names the field as clients write it.
"""

from collections.abc import Mapping
from typing import Final

from services.orchestrator.core.params import ParamRules, check_engines, check_lengths
from services.orchestrator.core.plan import Plan, Planner
from services.orchestrator.core.settings import DoorLimits
from stagemesh.errors import MeshError, invalid, unsupported
from stagemesh.media import MediaPart, Message, Modality, Request, TextPart
from stagemesh.outcome import error_for
from stagemesh.pipeline import Mesh, Pipeline

__all__ = ["Door", "request_bytes"]


_ROLES: Final = frozenset({"assistant", "developer", "system", "tool", "user"})

_UNTOLD: Final[Mapping[str, frozenset[str]]] = {}


class Door:
    """Checks requests against a mesh, and plans what it lets in."""

    def __init__(self, mesh: Mesh, limits: DoorLimits) -> None:
        self._limits = limits
        self._params = ParamRules(limits)
        self._planner = Planner()
        self._models = {
            model: pipeline
            for pipeline in mesh.pipelines.values()
            for model in pipeline.model_names
        }

    def enter(
        self,
        request: Request,
        *,
        context_tokens: Mapping[str, int],
        takes: Mapping[str, frozenset[str]] = _UNTOLD,
        streamed: bool = False,
    ) -> Plan:
        """Check a request and plan it.

        `context_tokens` says how much each pool's engine holds, `takes` which parameters it minds.

        A `streamed` request may have no messages, and may yet give whatever its pipeline takes;
        where no stage hears its client, all that it gives is its messages.

        Raises:
            MeshError: If the request cannot be served; the first thing wrong is named.
        """
        pipeline = self._pipeline(request.model)
        streamed = streamed and any(stage.streamed for stage in pipeline.stages)
        self._check_messages(request.messages, may_be_empty=streamed)
        _check_inputs(request, pipeline)
        self._params.check(request, pipeline)
        check_engines(request, pipeline, takes)
        for name, word in (("adapter", request.adapter), ("label", request.label)):
            if len(word) > self._limits.word_chars_max:
                raise invalid(
                    f"May have at most {self._limits.word_chars_max} characters.", param=name
                )
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
        check_lengths(request, plan, context_tokens)
        return plan

    def name_of(self, model: str) -> str:
        """Give the name of the pipeline that answers to `model`; else the word itself."""
        pipeline = self._models.get(model)
        return model if pipeline is None else pipeline.name

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
        if chars > self._limits.text_chars_max:
            what = f"Text may have at most {self._limits.text_chars_max} characters, not {chars}."
            raise MeshError(error_for("body_too_large", what, param="messages"))


def request_bytes(request: Request) -> int:
    """Tell how much memory a request's content takes here, in bytes; handles take none."""
    return sum(
        len(part.body.inline) if isinstance(part, MediaPart) else len(part.text)
        for message in request.messages
        for part in message.parts
    )


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
