"""What this process says of itself."""

from services.orchestrator.core.effects import PublishedModel, PublishModels
from services.orchestrator.servicer import Presence
from services.orchestrator.translate import Portrait
from stagemesh.api.types.v1 import link_pb2
from tests.helpers.orchestrator_mesh import MESH

PORTRAIT = Portrait(
    orchestrator_id="o-0",
    incarnation=7,
    version="1.2.3",
    pid=42,
    payload_address="127.0.0.1:7000",
)
READY = PublishModels(models=(PublishedModel(model="echo", revision="r-echo", ready=True),))


def test_before_the_first_word_of_the_core_every_model_is_listed_and_none_is_ready() -> None:
    presence = Presence(PORTRAIT, MESH)

    assert presence.readiness() == {"echo": False, "talk": False, "parrot": False}
    assert [model.model for model in presence.models()] == ["echo", "talk", "parrot"]


def test_a_hello_says_who_where_and_what() -> None:
    presence = Presence(PORTRAIT, MESH)
    presence.publish(READY)
    hello = presence.hello()

    assert hello.service == link_pb2.SERVICE_KIND_ORCHESTRATOR
    assert (hello.id, hello.incarnation, hello.pid) == ("o-0", 7, 42)
    assert (hello.version, hello.payload_address) == ("1.2.3", "127.0.0.1:7000")
    assert (hello.limits.window_units, hello.limits.window_bytes) == (64, 1024 * 1024)
    assert [(model.model, model.ready) for model in hello.pipelines] == [("echo", True)]
    assert hello.state == link_pb2.PROCESS_STATE_READY


def test_news_carry_the_models_and_a_sign_of_life_does_not() -> None:
    presence = Presence(PORTRAIT, MESH)
    presence.publish(READY)

    assert presence.news().has_pipelines
    assert [model.model for model in presence.news().pipelines] == ["echo"]
    assert not presence.sign_of_life().has_pipelines


def test_while_it_drains_nothing_is_ready_and_everybody_is_told() -> None:
    presence = Presence(PORTRAIT, MESH)
    presence.publish(READY)
    presence.draining = True

    assert presence.readiness() == {"echo": False}
    states = {presence.hello().state, presence.news().state, presence.sign_of_life().state}
    assert states == {link_pb2.PROCESS_STATE_DRAINING}
