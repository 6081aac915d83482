"""Image replies: rows to OpenAI's list of images."""

import base64
from collections.abc import Sequence

from services.gateway.core.replies.bound import Bound
from services.gateway.core.replies.head import ReplyHead, encode
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.media import IMAGE_PNG, Modality
from stagemesh.outcome import error_for

__all__ = ["ImagesWhole"]


class ImagesWhole:
    """Collects the images of one request, in the order of its choices."""

    __slots__ = ("_bound", "_head", "_images", "_size")

    def __init__(self, head: ReplyHead, *, bytes_max: int) -> None:
        self._head = head
        self._bound = Bound(bytes_max)
        self._images: dict[int, list[bytes]] = {}
        self._size = ""

    def add(self, rows: Sequence[Row]) -> None:
        """Take some rows.

        Raises:
            MeshError: If the reply outgrows its bound, or an image is not a PNG.
        """
        for row in rows:
            body = row.body
            if row.lane & 0xF != Modality.IMAGE or body is None or not body.size_bytes:
                continue
            if body.media_type != IMAGE_PNG:
                raise MeshError(error_for("protocol_error", f"An image of {body.media_type} came."))
            self._bound.spend(len(body.inline))
            self._images.setdefault(row.lane >> 4 & 0xFFFF, []).append(body.inline)
            if len(body.shape) > 1:
                self._size = f"{body.shape[0]}x{body.shape[1]}"

    def close(self) -> bytes:
        """Write the reply."""
        images = [image for choice in sorted(self._images) for image in self._images[choice]]
        reply = {
            "created": self._head.created_s,
            "data": [{"b64_json": base64.b64encode(image).decode()} for image in images],
            "output_format": "png",
        }
        return encode(reply | {"size": self._size} if self._size else reply)
