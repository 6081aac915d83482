"""What a worker is told of a stage."""

import msgspec

from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.effects import RoleOrder, SourceOrder, SubmitAttempts
from services.orchestrator.translate import Submits
from stagemesh.api.types.v1 import link_pb2, outcome_pb2, request_pb2
from stagemesh.link.core import LaneJournal
from stagemesh.media import Modality, Params, Sampling, lane_of
from stagemesh.outcome import End, FinishReason
from stagemesh.pipeline import EdgeMode
from stagemesh.wire import params_from_proto
from tests.helpers.orchestrator_mesh import MESH


def request_body(**fields: object) -> request_pb2.Request:
    body = request_pb2.Request(
        model="talk",
        choices=2,
        seed=7,
        seed_explicit=True,
        messages=[request_pb2.Message(role="user", parts=[request_pb2.Part(text="hello")])],
    )
    body.params.sampling.temperature = 0.0
    return body


def order(stage: int, body: request_pb2.Request, model: str = "talk") -> SubmitAttempts:
    return SubmitAttempts(
        link=3,
        request_id="req_1",
        epoch=1,
        attempt=1,
        model=model,
        stage=stage,
        roles=(
            RoleOrder(slot=5, role=0, companion="", lanes=(lane_of(stage, 0, Modality.TEXT),)),
            RoleOrder(slot=6, role=1, companion="mood", lanes=()),
        ),
        sources=(
            SourceOrder(
                lane=lane_of(0, 1, Modality.TEXT),
                stage="thinker",
                companion="",
                mode=EdgeMode.STREAM,
                choice=1,
            ),
        ),
        deadline_left_s=9.5,
        body=body,
    )


def test_what_holds_at_the_stage_is_told_and_the_client_s_own_wishes_stay_as_they_were() -> None:
    body = request_body()
    params = Params(sampling=Sampling(tokens_max=512, temperature=0.0, stop=("###",)))

    submit = Submits(MESH).to_proto(msgspec.structs.replace(order(0, body), params=params))

    assert params_from_proto(submit.params) == params
    assert submit.request.params == body.params


def test_only_a_stage_that_reads_the_input_gets_the_messages() -> None:
    body = request_body()
    submits = Submits(MESH)
    reader, other = submits.to_proto(order(0, body)), submits.to_proto(order(1, body))

    assert reader.request == body
    assert not other.request.messages
    assert (other.request.model, other.request.choices) == ("talk", 2)
    assert (other.request.seed, other.request.seed_explicit) == (7, True)
    assert len(body.messages) == 1


def test_bridge_and_options_come_from_the_mesh_file() -> None:
    submit = Submits(MESH).to_proto(order(0, request_body()))

    assert submit.bridge == "chat"
    assert dict(submit.bridge_options) == {"system": "Be brief.", "turns_max": 3}
    assert Submits(MESH).to_proto(order(1, request_body())).bridge == "clauses"


def test_an_alias_is_submitted_like_the_pipeline_that_it_names() -> None:
    submit = Submits(MESH).to_proto(order(1, request_body(), model="parrot"))

    assert (submit.stage, submit.stage_name) == (1, "talker")


def test_roles_and_sources_are_carried_over_whole() -> None:
    submit = Submits(MESH).to_proto(order(1, request_body()))

    assert (submit.request_id, submit.epoch, submit.attempt) == ("req_1", 1, 1)
    assert submit.deadline_left_s == 9.5
    assert [(role.slot, role.role, role.companion) for role in submit.roles] == [
        (5, 0, ""),
        (6, 1, "mood"),
    ]
    assert list(submit.roles[0].lanes) == [lane_of(1, 0, Modality.TEXT)]
    assert submit.sources[0] == link_pb2.Source(
        lane=lane_of(0, 1, Modality.TEXT),
        stage="thinker",
        mode=link_pb2.EDGE_MODE_STREAM,
        choice=1,
    )


def test_an_attempt_that_goes_on_says_where_and_by_which_contract() -> None:
    marks = (
        LaneJournal(lane=17, next=2, ids=[7, 8]),
        LaneJournal(lane=18, next=160, digest=b"d", end=End(finish_reason=FinishReason.STOP)),
    )
    first = order(1, request_body())
    on = msgspec.structs.replace(
        first,
        contract=ResumeContract.REPLAY,
        resume=marks,
        roles=(msgspec.structs.replace(first.roles[0], token_ids=True), first.roles[1]),
    )
    submit = Submits(MESH).to_proto(on)

    assert submit.contract == link_pb2.RESUME_CONTRACT_REPLAY
    assert [role.token_ids for role in submit.roles] == [True, False]
    text, sound = submit.resume
    assert (text.lane, text.pos, list(text.token_ids), text.digest) == (17, 2, [7, 8], b"")
    assert (sound.lane, sound.pos, sound.digest) == (18, 160, b"d")
    assert sound.end.finish_reason == outcome_pb2.FINISH_REASON_STOP
    assert not text.HasField("end")
    assert Submits(MESH).to_proto(first).contract == link_pb2.RESUME_CONTRACT_UNSPECIFIED
