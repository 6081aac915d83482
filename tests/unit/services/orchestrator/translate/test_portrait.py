"""The messages by which an orchestrator introduces itself."""

from services.orchestrator.translate import Portrait, hello_of, news_of, sign_of_life
from stagemesh.api.types.v1 import link_pb2

PORTRAIT = Portrait(
    orchestrator_id="o-0",
    incarnation=3,
    version="1",
    pid=9,
    payload_address="127.0.0.1:7000",
    window_units=16,
    window_bytes=4096,
)
MODELS = [link_pb2.PublishedPipeline(model="echo", ready=True)]


def test_the_first_windows_are_those_of_the_portrait() -> None:
    hello = hello_of(PORTRAIT, draining=False, pipelines=MODELS)

    assert (hello.limits.window_units, hello.limits.window_bytes) == (16, 4096)
    assert list(hello.pipelines) == MODELS


def test_news_mean_their_list_of_models_also_when_it_is_empty() -> None:
    assert news_of(draining=False, pipelines=[]).has_pipelines
    assert list(news_of(draining=False, pipelines=MODELS).pipelines) == MODELS


def test_draining_is_told_in_every_message() -> None:
    states = {
        hello_of(PORTRAIT, draining=True, pipelines=[]).state,
        news_of(draining=True, pipelines=[]).state,
        sign_of_life(draining=True).state,
    }
    assert states == {link_pb2.PROCESS_STATE_DRAINING}
