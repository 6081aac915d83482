"""`POST /v1/audio/transcriptions`."""

from collections.abc import AsyncGenerator
from typing import Final

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from services.gateway.core.replies import Bound, encode
from services.gateway.core.requests import UploadedFile, read_transcription
from services.gateway.edges.call import JSON, Call
from services.gateway.edges.relay import Watched, collect
from stagemesh.errors import invalid
from stagemesh.link.core import Row

__all__ = ["transcription"]

_FIELDS_MAX: Final = 64
_FIELD_BYTES_MAX: Final = 64 * 1024


async def transcription(call: Call) -> None:
    """Answer a recording with its words."""
    fields, file = await _form(call)
    order = read_transcription(fields, file, call.origin())
    call.names = order.names
    words: list[str] = []
    bound = Bound(call.backend.limits.reply_bytes_max)

    def add(rows: list[Row]) -> None:
        for row in rows:
            bound.spend(len(row.text))
            words.append(row.text)

    async with Watched(call, await call.open(order.request)) as watched:
        await collect(watched.exchange, add)
        text = "".join(words).strip()
        if order.format == "text":
            await call.answer("text/plain; charset=utf-8", f"{text}\n".encode())
        else:
            await call.answer(JSON, encode({"text": text}))


async def _form(call: Call) -> tuple[list[tuple[str, str]], UploadedFile | None]:
    """Read a form of text fields and one file named `file`.

    Raises:
        MeshError: If it is not such a form.
    """
    content_type = call.header(b"content-type")
    if not content_type.lower().startswith("multipart/form-data"):
        raise invalid("The body must be multipart/form-data.", param="Content-Type")
    body = await call.body()

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield bytes(body)
        yield b""

    parser = MultiPartParser(
        Headers({"content-type": content_type}), chunks(), max_files=1, max_fields=_FIELDS_MAX,
        max_part_size=_FIELD_BYTES_MAX,
    )  # fmt: skip
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise invalid(f"The form cannot be read: {error.message}") from None
    fields: list[tuple[str, str]] = []
    file: UploadedFile | None = None
    try:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields.append((name, value))
            elif name == "file":
                file = UploadedFile(name=value.filename or "", data=await value.read())
            else:
                raise invalid(f"Unknown parameter: '{name}'.", param=name)
    finally:
        await form.close()
    return fields, file
