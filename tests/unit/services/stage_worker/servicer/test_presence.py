import os

from services.stage_worker.core import Identity, Limits, StageWorker
from services.stage_worker.core.events import EngineLoaded
from services.stage_worker.engines.base import EngineConfig, ModelCard, ResumeContract
from services.stage_worker.servicer import Presence
from stagemesh.api.types.v1 import link_pb2
from stagemesh.ids import Incarnation
from tests.helpers.hand_engine import HandEngine


def test_the_portrait_is_complete_once_the_engine_is_loaded() -> None:
    core = StageWorker(Identity(pool="pool", replica_id="replica-0"))
    presence = Presence(
        core,
        EngineConfig(pool="pool", replica_id="replica-0", model="wanted"),
        "hand",
        incarnation=Incarnation(7),
        limits=Limits(),
        payload_address="127.0.0.1:9",
        look=lambda: 42,
    )
    early = presence.hello()
    assert early.state == link_pb2.PROCESS_STATE_STARTING
    assert (early.id, early.incarnation, early.pid) == ("replica-0", 7, os.getpid())
    assert (early.worker.model, early.worker.capabilities.slots) == ("wanted", 0)
    assert early.payload_address == "127.0.0.1:9"
    engine = HandEngine(slots=3)
    presence.loaded(ModelCard(model="real", digest="d"), engine.capabilities)
    core.step(EngineLoaded(slots=3, contract=ResumeContract.REPLAY), 0.0)
    late = presence.hello()
    assert late.state == link_pb2.PROCESS_STATE_READY
    assert (late.worker.model, late.worker.capabilities.slots) == ("real", 3)
    ping = presence.ping()
    assert (ping.steps, ping.load.slots_free) == (42, 3)
