"""Image replies."""

import base64
import json

import pytest

from services.gateway.core.replies import ImagesWhole, ReplyHead
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, lane_of

HEAD = ReplyHead(request_id="req_1", created_s=7, model="m")


def _row(data: bytes, choice: int = 0, media_type: str = "image/png") -> Row:
    body = Body(inline=data, media_type=media_type, shape=(2, 3))
    return Row(1, lane_of(0, choice, Modality.IMAGE), 0, 1, body=body)


def test_images_are_in_the_order_of_their_choices() -> None:
    images = ImagesWhole(HEAD, bytes_max=100)
    images.add([_row(b"two", 1), _row(b"one"), Row(1, lane_of(0, 0, Modality.IMAGE), 1, 0)])
    reply = json.loads(images.close())
    assert [base64.b64decode(image["b64_json"]) for image in reply["data"]] == [b"one", b"two"]
    assert (reply["created"], reply["output_format"], reply["size"]) == (7, "png", "2x3")


def test_only_png_is_taken_and_only_so_much_of_it() -> None:
    images = ImagesWhole(HEAD, bytes_max=3)
    with pytest.raises(MeshError):
        images.add([_row(b"x", media_type="image/jpeg")])
    with pytest.raises(MeshError):
        images.add([_row(b"four")])
