"""What a worker says of itself."""

from services.stage_worker.core import Limits
from services.stage_worker.engines.base import Capabilities, LoadReport, ModelCard
from stagemesh.api.types.v1 import link_pb2
from stagemesh.wire import capabilities_to_proto

__all__ = ["card_to_proto", "limits_to_proto", "load_to_proto"]


def card_to_proto(
    pool: str, engine: str, model: ModelCard, capabilities: Capabilities | None
) -> link_pb2.WorkerCard:
    """Say what runs here; `capabilities` is None until the engine is loaded."""
    return link_pb2.WorkerCard(
        pool=pool,
        engine=engine,
        model=model.model,
        model_digest=model.digest,
        capabilities=capabilities_to_proto(capabilities) if capabilities else None,
    )


def limits_to_proto(limits: Limits) -> link_pb2.LinkLimits:
    """Say what each source of an attempt may send ahead."""
    return link_pb2.LinkLimits(
        window_units=limits.input_window_units, window_bytes=limits.input_window_bytes
    )


def load_to_proto(load: LoadReport, slots_free: int) -> link_pb2.Load:
    """Say how busy it is."""
    return link_pb2.Load(running=load.running, waiting=load.waiting, slots_free=slots_free)
