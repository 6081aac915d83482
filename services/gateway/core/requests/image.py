"""`POST /v1/images/generations`: OpenAI's body to the internal request."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from services.gateway.core.requests.decoding import (
    NOTHING,
    Body,
    Natural,
    Unserved,
    decode_json,
    refuse_unserved,
)
from services.gateway.core.requests.origin import Origin, model_name
from services.gateway.core.requests.tuning import StageParams, read_stage_params
from stagemesh.errors import invalid, unsupported
from stagemesh.media import ImageParams, Message, Modality, Params, Request, TextPart

__all__ = ["IMAGE_EXTENSIONS", "IMAGE_UNSERVED", "ImageBody", "ImageOrder", "read_image"]

IMAGE_EXTENSIONS: Final = (
    "guidance_scale", "negative_prompt", "num_inference_steps", "seed", "stage_params",
)  # fmt: skip
"""Fields of the body that are ours and not OpenAI's."""

IMAGE_UNSERVED: Final[dict[str, tuple[Any, ...]]] = {
    "background": ("auto",),
    "complexity": (),
    "frame_count": (),
    "frame_duration_ms": (),
    "moderation": ("auto",),
    "output_compression": (100,),
    "output_format": ("png",),
    "partial_images": (0,),
    "quality": ("auto",),
    "stream": (False,),
    "style": (),
    "svg": (),
}

_SIZE: Final = re.compile(r"(\d{1,9})x(\d{1,9})", re.ASCII)


class ImageBody(Body, frozen=True):
    """The body as OpenAI writes it, with our extensions last."""

    model: str
    prompt: str
    n: Natural | None = None
    size: str | None = None
    response_format: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    background: Unserved = NOTHING
    complexity: Unserved = NOTHING
    frame_count: Unserved = NOTHING
    frame_duration_ms: Unserved = NOTHING
    moderation: Unserved = NOTHING
    output_compression: Unserved = NOTHING
    output_format: Unserved = NOTHING
    partial_images: Unserved = NOTHING
    quality: Unserved = NOTHING
    stream: Unserved = NOTHING
    style: Unserved = NOTHING
    svg: Unserved = NOTHING
    guidance_scale: float | None = None
    negative_prompt: str | None = None
    num_inference_steps: Natural | None = None
    seed: int | None = None
    stage_params: StageParams | None = None


class ImageOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An image request; its answer is always base64 inside JSON."""

    request: Request
    names: ClassVar[Mapping[str, str]] = {"messages": "prompt", "steps": "num_inference_steps"}
    """What this body calls the fields that errors may name, where it differs."""


_DECODER: Final = msgspec.json.Decoder(ImageBody)


def read_image(raw: bytes | bytearray, origin: Origin) -> ImageOrder:
    """Turn a body into the internal request.

    Raises:
        MeshError: If the body is not what OpenAI allows, or asks for what is not served.
    """
    body = decode_json(_DECODER, raw)
    refuse_unserved(body, IMAGE_UNSERVED)
    if body.response_format not in {None, "b64_json"}:
        raise unsupported(
            f"Images are given as 'b64_json' here, not as '{body.response_format}'.",
            param="response_format",
        )
    if not body.prompt:
        raise invalid("'prompt' is empty.", param="prompt")
    if body.n == 0:
        # On the wire 0 means 1, so the door could not see it.
        raise invalid("'n' must be at least 1.", param="n")
    width, height = _size(body.size)
    image = ImageParams(
        width=width,
        height=height,
        steps=body.num_inference_steps,
        guidance_scale=body.guidance_scale,
        negative_prompt=body.negative_prompt,
    )
    return ImageOrder(
        request=Request(
            model=model_name(body.model),
            messages=(Message(role="user", parts=(TextPart(body.prompt),)),),
            modalities=(Modality.IMAGE,),
            params=Params(image=image),
            stage_params=read_stage_params(body.stage_params),
            choices=body.n or 1,
            seed=origin.seed if body.seed is None else body.seed % 2**64,
            seed_explicit=body.seed is not None,
            label=origin.label,
        )
    )


def _size(size: str | None) -> tuple[int | None, int | None]:
    if size is None or size == "auto":
        return None, None
    found = _SIZE.fullmatch(size)
    if found is None:
        raise invalid("'size' must be 'auto', or as '512x512'.", param="size")
    return int(found[1]), int(found[2])
