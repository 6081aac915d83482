"""Effects as frames, and the published models."""

import pytest

from services.orchestrator.core.effects import (
    AbortAttempt,
    AnswerUnknown,
    EndRequest,
    FenceRequest,
    HandBackRequest,
    PlaceNotice,
    PublishedModel,
    PublishModels,
    ReleaseHandles,
    RenewHandles,
    ResetLanes,
    SayGoAway,
)
from services.orchestrator.translate import FrameEffect, frame_of, published_pipelines
from stagemesh.api.types.v1 import link_pb2, media_pb2, outcome_pb2
from stagemesh.link.core import Placed
from stagemesh.outcome import Outcome, Terminal, error_for
from tests.helpers.orchestrator_mesh import MESH


@pytest.mark.parametrize(
    ("effect", "frame"),
    [
        (
            AbortAttempt(link=1, slot=2, cause="client_closed"),
            link_pb2.Frame(abort=link_pb2.Abort(slot=2, cause="client_closed")),
        ),
        (
            FenceRequest(link=1, request_id="req_1", epoch=2, handle_ids=("h_1",)),
            link_pb2.Frame(fence=link_pb2.Fence(request_id="req_1", epoch=2, handle_ids=["h_1"])),
        ),
        (
            HandBackRequest(link=1, slot=2, request_id="req_1"),
            link_pb2.Frame(hand_back=link_pb2.HandBack(slot=2)),
        ),
        (
            ResetLanes(link=1, slot=2, stages=(0, 3)),
            link_pb2.Frame(reset=link_pb2.Reset(slot=2, stages=[0, 3])),
        ),
        (
            PlaceNotice(
                link=1,
                slot=2,
                placed=Placed(stage=1, role=3, attempt=4, replica_id="w", incarnation=5),
            ),
            link_pb2.Frame(
                placed=link_pb2.Placed(
                    slot=2, stage=1, role=3, attempt=4, replica_id="w", incarnation=5
                )
            ),
        ),
        (AnswerUnknown(link=1, slot=2), link_pb2.Frame(unknown=link_pb2.Unknown(slot=2))),
        (
            ReleaseHandles(link=1, request_id="req_1", epoch=1, handle_ids=("h_1", "h_2")),
            link_pb2.Frame(
                release=link_pb2.Release(request_id="req_1", epoch=1, handle_ids=["h_1", "h_2"])
            ),
        ),
        (
            RenewHandles(link=1, request_id="req_1", epoch=1),
            link_pb2.Frame(renew=link_pb2.Renew(request_id="req_1", epoch=1)),
        ),
        (
            SayGoAway(link=1, reason="sigterm", drain_s=10.0),
            link_pb2.Frame(go_away=link_pb2.GoAway(reason="sigterm", drain_s=10.0)),
        ),
    ],
)
def test_an_effect_becomes_its_frame(effect: FrameEffect, frame: link_pb2.Frame) -> None:
    assert frame_of(effect) == frame


def test_the_terminal_of_a_request_carries_outcome_and_cause() -> None:
    terminal = Terminal(outcome=Outcome.REJECTED, error=error_for("model_not_found"))
    frame = frame_of(EndRequest(link=1, slot=9, request_id="req_1", terminal=terminal))

    assert frame.terminal.slot == 9
    assert frame.terminal.outcome == outcome_pb2.OUTCOME_REJECTED
    assert frame.terminal.error.reason == "model_not_found"


def test_models_are_published_with_what_they_take_and_give() -> None:
    models = published_pipelines(
        MESH,
        PublishModels(
            models=(
                PublishedModel(model="parrot", revision="r-talk", ready=True),
                PublishedModel(model="echo", revision="r-echo", ready=False),
            )
        ),
    )

    assert [(model.model, model.ready) for model in models] == [("parrot", True), ("echo", False)]
    assert [model.deadline_s for model in models] == [300.0, 20.0]
    assert list(models[0].output_modalities) == [media_pb2.MODALITY_TEXT, media_pb2.MODALITY_AUDIO]
    assert list(models[1].input_modalities) == [media_pb2.MODALITY_TEXT, media_pb2.MODALITY_AUDIO]
