import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.media import Lane, Modality, lane_of, split_lane
from stagemesh.media.lanes import ROLES_MAX, STAGES_MAX


def test_a_lane_number_is_stage_role_and_modality_side_by_side() -> None:
    assert lane_of(3, 2, Modality.AUDIO) == 3 << 20 | 2 << 4 | 2


@given(
    stage=st.integers(0, STAGES_MAX - 1),
    role=st.integers(0, ROLES_MAX - 1),
    modality=st.sampled_from(Modality),
)
def test_a_lane_number_is_read_as_it_was_made_and_fits_the_wire(
    stage: int, role: int, modality: Modality
) -> None:
    number = lane_of(stage, role, modality)
    assert 0 <= number < 1 << 32
    assert split_lane(number) == Lane(stage, role, modality)


@pytest.mark.parametrize(("stage", "role"), [(-1, 0), (STAGES_MAX, 0), (0, -1), (0, ROLES_MAX)])
def test_what_does_not_fit_is_not_made(stage: int, role: int) -> None:
    with pytest.raises(ValueError, match=f"stage {stage}, role {role}"):
        lane_of(stage, role, Modality.TEXT)


def test_a_number_without_a_modality_is_no_lane() -> None:
    with pytest.raises(ValueError, match="0 is not a valid Modality"):
        split_lane(1 << 20)
