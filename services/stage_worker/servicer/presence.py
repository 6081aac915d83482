"""What the worker says of itself: in its Hello, in each Ping, and to `Describe`."""

import os
from collections.abc import Callable
from importlib.metadata import version

from services.stage_worker.core import Limits, StageWorker
from services.stage_worker.engines.base import Capabilities, EngineConfig, ModelCard
from services.stage_worker.translate import card_to_proto, limits_to_proto, load_to_proto
from stagemesh.api.types.v1 import link_pb2
from stagemesh.ids import Incarnation
from stagemesh.wire import gate_to_proto

__all__ = ["Presence"]


class Presence:
    """One worker's portrait; `loaded` completes it."""

    def __init__(
        self,
        core: StageWorker,
        config: EngineConfig,
        engine: str,
        *,
        incarnation: Incarnation,
        limits: Limits,
        payload_address: str,
        look: Callable[[], int],
    ) -> None:
        self._core = core
        self._config = config
        self._engine = engine
        self._incarnation = incarnation
        self._limits = limits
        self._payload_address = payload_address
        self._look = look
        self._version = version("stagemesh")
        self._card = card_to_proto(config.pool, engine, ModelCard(model=config.model), None)

    def loaded(self, model: ModelCard, capabilities: Capabilities) -> None:
        """Complete the portrait with what the engine has become."""
        self._card = card_to_proto(self._config.pool, self._engine, model, capabilities)

    def hello(self) -> link_pb2.Hello:
        """Say who is here."""
        return link_pb2.Hello(
            service=link_pb2.SERVICE_KIND_STAGE_WORKER,
            id=self._config.replica_id,
            incarnation=self._incarnation,
            version=self._version,
            pid=os.getpid(),
            limits=limits_to_proto(self._limits),
            state=link_pb2.ProcessState.ValueType(self._core.state),
            worker=self._card,
            payload_address=self._payload_address,
            gate=gate_to_proto(self._core.gate),
        )

    def ping(self) -> link_pb2.Ping:
        """Say how it goes."""
        steps = self._look()
        return link_pb2.Ping(
            state=link_pb2.ProcessState.ValueType(self._core.state),
            load=load_to_proto(self._core.attempts.load(steps), self._core.slots_free),
            steps=steps,
            gate=gate_to_proto(self._core.gate),
        )
