"""Large media of requests, for as long as anybody here has need of it."""

from typing import Any

from services.gateway.client import Media
from stagemesh.media import INLINE_BYTES_MAX, Body, Handle, MediaPart, Message, Modality, Request


class Notes:
    """A store that writes down what it is told."""

    def __init__(self) -> None:
        self.put_for: list[str] = []
        self.released: list[str] = []

    def put(self, data: bytes, request_id: str) -> Handle:
        """See `PayloadStore`."""
        self.put_for.append(request_id)
        return Handle(
            handle_id="h", request_id=request_id, holder_id="g", incarnation=1, address="",
            size_bytes=len(data),
        )  # fmt: skip

    def release(self, request_id: str) -> None:
        """See `PayloadStore`."""
        self.released.append(request_id)


async def test_what_was_put_twice_stays_until_it_is_released_twice() -> None:
    """As is a request that a gateway takes over from itself."""
    notes: Any = Notes()
    media = Media(notes, notes, fetch_s=1.0, lease_s=1.0)
    body = Body(inline=bytes(INLINE_BYTES_MAX + 1), media_type="image/png")
    request = Request(
        model="m",
        messages=(Message(role="user", parts=(MediaPart(modality=Modality.IMAGE, body=body),)),),
        modalities=(Modality.TEXT,),
    )
    for _ in range(2):
        await media.put(request, "req_1")
    media.release("req_1")
    assert (notes.put_for, notes.released) == (["req_1", "req_1"], [])
    for _ in range(2):
        media.release("req_1")
    assert notes.released == ["req_1"]
