"""Which services stand on a worker's port."""

from grpc import aio

from services.stage_worker.servicer.stage import StageServicer
from stagemesh.api.stage.v1 import payload_service_pb2_grpc, stage_service_pb2_grpc
from stagemesh.payload import PayloadServicer

__all__ = ["register_services"]


def register_services(stage: StageServicer, payloads: PayloadServicer, server: aio.Server) -> None:
    """Put the services for orchestrators, and for readers of payloads, on a server."""
    stage_service_pb2_grpc.add_StageServiceServicer_to_server(stage, server)
    payload_service_pb2_grpc.add_PayloadServiceServicer_to_server(payloads, server)
