"""The internal request: `request.proto`. What a client left unset stays unset."""

from typing import Any, Final

from google.protobuf.message import Message as ProtoMessage

from stagemesh.api.types.v1 import request_pb2
from stagemesh.errors import invalid
from stagemesh.media import (
    MESSAGES_MAX,
    PARTS_MAX,
    STAGES_MAX,
    AudioParams,
    ImageParams,
    MediaPart,
    Message,
    Modality,
    Params,
    Part,
    Request,
    Sampling,
    TextPart,
)
from stagemesh.wire.bodies import (
    body_from_proto,
    body_to_proto,
    modality_from_proto,
    modality_to_proto,
)

__all__ = [
    "check_counts",
    "message_from_proto",
    "message_to_proto",
    "params_from_proto",
    "params_to_proto",
    "request_from_proto",
    "request_to_proto",
]

_SAMPLING: Final = (
    "tokens_max",
    "tokens_min",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "ignore_eos",
)
_AUDIO: Final = ("voice", "speed", "language")
_IMAGE: Final = ("width", "height", "steps", "guidance_scale", "negative_prompt")

_NO_SAMPLING: Final = Sampling()
_NO_AUDIO: Final = AudioParams()
_NO_IMAGE: Final = ImageParams()


def params_to_proto(params: Params) -> request_pb2.Params:
    """Encode what a client tuned; a group of which nothing is set is left out."""
    message = request_pb2.Params()
    if params.sampling != _NO_SAMPLING:
        values = {name: getattr(params.sampling, name) for name in _SAMPLING}
        message.sampling.CopyFrom(request_pb2.Sampling(stop=params.sampling.stop, **values))
    if params.audio != _NO_AUDIO:
        values = {name: getattr(params.audio, name) for name in _AUDIO}
        message.audio.CopyFrom(request_pb2.AudioParams(**values))
    if params.image != _NO_IMAGE:
        values = {name: getattr(params.image, name) for name in _IMAGE}
        message.image.CopyFrom(request_pb2.ImageParams(**values))
    return message


def params_from_proto(message: request_pb2.Params) -> Params:
    """Decode what a client tuned."""
    return Params(
        sampling=Sampling(
            stop=tuple(message.sampling.stop), **_set_fields(message.sampling, _SAMPLING)
        ),
        audio=AudioParams(**_set_fields(message.audio, _AUDIO)),
        image=ImageParams(**_set_fields(message.image, _IMAGE)),
    )


def message_to_proto(message: Message) -> request_pb2.Message:
    """Encode one message of a conversation."""
    return request_pb2.Message(
        role=message.role,
        parts=[_part_to_proto(part) for part in message.parts],
        name=message.name,
    )


def message_from_proto(message: request_pb2.Message, *, param: str = "message") -> Message:
    """Decode one message of a conversation; `param` is how errors call it.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if a part is empty or of no modality.
    """
    return Message(
        role=message.role,
        parts=tuple(
            _part_from_proto(part, f"{param}.parts[{index}]")
            for index, part in enumerate(message.parts)
        ),
        name=message.name,
    )


def request_to_proto(request: Request) -> request_pb2.Request:
    """Encode a request."""
    return request_pb2.Request(
        model=request.model,
        modalities=[modality_to_proto(modality) for modality in request.modalities],
        messages=[message_to_proto(message) for message in request.messages],
        params=params_to_proto(request.params),
        choices=request.choices,
        seed=request.seed,
        seed_explicit=request.seed_explicit,
        label=request.label,
        tenant=request.tenant,
        priority=request.priority,
        stage_params={
            stage: params_to_proto(params) for stage, params in request.stage_params.items()
        },
        adapter=request.adapter,
    )


def check_counts(message: request_pb2.Request) -> None:
    """See that a request does not consist of more things than any request may.

    A message of some megabytes has room for a million empty ones, which would take seconds.

    Raises:
        MeshError: With `INVALID_ARGUMENT` and the field.
    """
    if len(message.modalities) > len(Modality):
        raise invalid("There are not so many modalities.", param="modalities")
    if len(message.messages) > MESSAGES_MAX:
        raise invalid(f"There may be at most {MESSAGES_MAX} messages.", param="messages")
    if len(message.stage_params) > STAGES_MAX:
        raise invalid(f"There may be at most {STAGES_MAX} stages.", param="stage_params")
    if sum(len(one.parts) for one in message.messages) > PARTS_MAX:
        raise invalid(f"There may be at most {PARTS_MAX} parts in all.", param="messages")


def request_from_proto(message: request_pb2.Request) -> Request:
    """Decode a request; no choices mean one, no tenant means `default`.

    Raises:
        MeshError: With `INVALID_ARGUMENT` and the field, if a part or a modality says nothing, or
            there are too many.
    """
    check_counts(message)
    return Request(
        model=message.model,
        modalities=tuple(
            modality_from_proto(number, param=f"modalities[{index}]")
            for index, number in enumerate(message.modalities)
        ),
        messages=tuple(
            message_from_proto(one, param=f"messages[{index}]")
            for index, one in enumerate(message.messages)
        ),
        params=params_from_proto(message.params),
        choices=message.choices or 1,
        seed=message.seed,
        seed_explicit=message.seed_explicit,
        label=message.label,
        tenant=message.tenant or "default",
        priority=message.priority,
        stage_params={
            stage: params_from_proto(params) for stage, params in message.stage_params.items()
        },
        adapter=message.adapter,
    )


def _set_fields(message: ProtoMessage, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def _part_to_proto(part: Part) -> request_pb2.Part:
    if isinstance(part, TextPart):
        return request_pb2.Part(text=part.text)
    return request_pb2.Part(
        media=request_pb2.MediaPart(
            modality=modality_to_proto(part.modality),
            body=body_to_proto(part.body),
            param=part.param,
        )
    )


def _part_from_proto(part: request_pb2.Part, param: str) -> Part:
    match part.WhichOneof("content"):
        case "text":
            return TextPart(part.text)
        case "media":
            media = part.media
            return MediaPart(
                modality=modality_from_proto(media.modality, param=media.param or param),
                body=body_from_proto(media.body),
                param=media.param,
            )
        case _:
            raise invalid("the part is empty", param=param, reason="missing_required_parameter")
