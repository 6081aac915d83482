import pytest

from services.stage_worker.core.contracts import effective_contract, resume_of
from services.stage_worker.engines.base import Capabilities, Resume, ResumeContract
from stagemesh.errors import MeshError
from stagemesh.link.core import LaneJournal
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import ErrorCode
from tests.helpers.worker_core import STAGE, TEXT_LANE, submission

AUDIO_LANE = lane_of(STAGE, 0, Modality.AUDIO)


def capable(contract: ResumeContract, *, deterministic: bool = True) -> Capabilities:
    return Capabilities(
        input_modalities=frozenset(Modality),
        output_modalities=frozenset(Modality),
        stream_input=True,
        stream_output=True,
        resume_contract=contract,
        deterministic=deterministic,
        slots=1,
    )


def test_what_is_drawn_at_random_cannot_be_replayed() -> None:
    assert effective_contract(capable(ResumeContract.REPLAY)) is ResumeContract.REPLAY
    random = capable(ResumeContract.REPLAY, deterministic=False)
    assert effective_contract(random) is ResumeContract.RESTART
    tokens = capable(ResumeContract.TOKENS, deterministic=False)
    assert effective_contract(tokens) is ResumeContract.TOKENS


def test_tokens_and_positions_are_told_to_the_engine() -> None:
    given = submission(
        contract=ResumeContract.TOKENS, resume=[LaneJournal(lane=TEXT_LANE, next=2, ids=[5, 6])]
    )
    assert resume_of(given, given.roles[0], capable(ResumeContract.TOKENS)) == Resume(
        contract=ResumeContract.TOKENS, positions={Modality.TEXT: 2}, token_ids=(5, 6)
    )


def test_only_the_lanes_of_its_own_role_count() -> None:
    given = submission(
        slots=(1, 2),
        modalities=(Modality.AUDIO,),
        contract=ResumeContract.PER_INPUT,
        resume=[LaneJournal(lane=AUDIO_LANE, next=480)],
    )
    able = capable(ResumeContract.PER_INPUT)
    assert resume_of(given, given.roles[0], able) == Resume(
        contract=ResumeContract.PER_INPUT, positions={Modality.AUDIO: 480}
    )
    assert resume_of(given, given.roles[1], able) is None


@pytest.mark.parametrize("contract", [None, ResumeContract.REPLAY, ResumeContract.RESTART])
def test_whoever_begins_again_is_told_nothing(contract: ResumeContract | None) -> None:
    given = submission(contract=contract, resume=[LaneJournal(lane=TEXT_LANE, next=2)])
    assert resume_of(given, given.roles[0], capable(ResumeContract.REPLAY)) is None


def test_where_nothing_was_delivered_there_is_nothing_to_go_on_from() -> None:
    given = submission(contract=ResumeContract.TOKENS, resume=[LaneJournal(lane=TEXT_LANE)])
    assert resume_of(given, given.roles[0], capable(ResumeContract.TOKENS)) is None


def test_an_engine_is_not_asked_for_what_it_does_not_do() -> None:
    given = submission(
        contract=ResumeContract.TOKENS, resume=[LaneJournal(lane=TEXT_LANE, next=1, ids=[5])]
    )
    with pytest.raises(MeshError) as caught:
        resume_of(given, given.roles[0], capable(ResumeContract.REPLAY))
    assert caught.value.info.code is ErrorCode.PROTOCOL
