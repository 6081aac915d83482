"""The RPCs of `StageService`."""

from typing import Any, Final

from grpc import aio

from services.stage_worker.servicer.links import Links
from services.stage_worker.servicer.presence import Presence
from stagemesh.api.stage.v1 import stage_service_pb2, stage_service_pb2_grpc
from stagemesh.link.pump import LinkPolicy, serve_link

__all__ = ["STAGE_SERVICE", "StageServicer"]

STAGE_SERVICE: Final = stage_service_pb2.DESCRIPTOR.services_by_name["StageService"].full_name


class StageServicer(stage_service_pb2_grpc.StageServiceServicer):
    """Runs a link for each orchestrator that attaches."""

    def __init__(self, links: Links, presence: Presence, policy: LinkPolicy) -> None:
        self._links = links
        self._presence = presence
        self._policy = policy

    async def Attach(  # type: ignore[override]  # noqa: N802 - read and write by hand, as the link does.
        self, request_iterator: object, context: aio.ServicerContext[Any, Any]
    ) -> None:
        """Serve a link to its end."""
        await serve_link(
            context,
            hello=self._presence.hello,
            ping=self._presence.ping,
            events=self._links,
            policy=self._policy,
        )

    async def Describe(  # noqa: N802 - the name is the proto's.
        self,
        request: stage_service_pb2.DescribeRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> stage_service_pb2.DescribeResponse:
        """Say what runs here, and how busy it is."""
        ping = self._presence.ping()
        return stage_service_pb2.DescribeResponse(hello=self._presence.hello(), load=ping.load)
