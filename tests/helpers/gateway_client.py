"""The part of a gateway that has orchestrators, as tests need it: with no edge in front of it."""

from typing import Any

from services.gateway.client import ClientPolicy, Media, Orchestrators
from services.gateway.translate import SelfPortrait
from stagemesh.discovery import Source
from stagemesh.ids import new_incarnation
from stagemesh.link.pump import LinkPolicy
from stagemesh.media import Body, Request

__all__ = ["NoMedia", "gateway_client"]


class NoMedia:
    """Requests and outputs without large media."""

    async def put(self, request: Request, request_id: str) -> Request:
        """Give the request as it is."""
        del request_id
        return request

    async def fetch(self, body: Body) -> Body:
        """Give a body as it is."""
        return body

    def release(self, request_id: str) -> None:
        """Keep nothing."""


def gateway_client(
    source: Source,
    *,
    media: Media | None = None,
    policy: ClientPolicy | None = None,
    windows: tuple[int, int] = (64, 1 << 20),
    name: str = "gateway-d",
) -> Orchestrators:
    """Make the client of a gateway; somebody has to run it."""
    no_media: Any = NoMedia()
    return Orchestrators(
        source,
        portrait=SelfPortrait(
            gateway_id=name, incarnation=new_incarnation(), version="0", pid=1,
            payload_address="", window_units=windows[0], window_bytes=windows[1],
        ),
        media=media or no_media,
        policy=policy or ClientPolicy(),
        link_policy=LinkPolicy(),
        tls=None,
        insecure=True,
        on_drop=lambda: None,
        on_loss=lambda kind: None,
    )  # fmt: skip
