import pytest

from stagemesh.media import AudioParams, ImageParams, Params, Sampling
from stagemesh.pipeline import (
    Clamp,
    Constraint,
    Fixed,
    Stage,
    effective_params,
    wished_fields,
)

CHAT = Params(sampling=Sampling(temperature=0.3, stop=("x",)), audio=AudioParams(voice="amy"))


def stage(
    *, comprehends: bool = True, params: Params | None = None, **constraints: Constraint
) -> Stage:
    return Stage(
        index=0,
        name="talker",
        pool="talker",
        reads_input=True,
        params=params or Params(),
        constraints={f"sampling.{name}": value for name, value in constraints.items()},
        comprehends=comprehends,
    )


def test_nothing_wished_leaves_the_defaults() -> None:
    default = Params(sampling=Sampling(temperature=0.9))
    assert effective_params(stage(params=default), Params(), {}) is default


def test_wishes_lie_over_defaults_field_by_field_and_stop_strings_are_replaced_whole() -> None:
    default = Params(sampling=Sampling(top_p=0.5, temperature=0.9, stop=("a", "b")))
    told = effective_params(stage(params=default), CHAT, {})
    assert told.sampling == Sampling(top_p=0.5, temperature=0.3, stop=("x",))
    assert told.audio.voice == "amy"


def test_how_tokens_are_drawn_never_reaches_a_stage_that_does_not_comprehend() -> None:
    told = effective_params(stage(comprehends=False), CHAT, {})
    assert told == Params(audio=AudioParams(voice="amy"))


def test_what_is_said_of_a_stage_goes_before_what_is_said_of_the_request() -> None:
    by_stage = {
        "talker": Params(sampling=Sampling(temperature=0.1), audio=AudioParams(voice="joe")),
        "other": Params(sampling=Sampling(temperature=2.0)),
    }
    for comprehends in (True, False):
        told = effective_params(stage(comprehends=comprehends), CHAT, by_stage)
        assert (told.sampling.temperature, told.audio.voice) == (0.1, "joe")


def test_a_fixed_value_holds_whatever_anybody_wishes() -> None:
    fixed = stage(temperature=Fixed(0.7), stop=Fixed(()), params=CHAT)
    by_stage = {"talker": Params(sampling=Sampling(temperature=0.1, stop=("y",)))}
    assert effective_params(fixed, CHAT, by_stage).sampling == Sampling(temperature=0.7)
    assert effective_params(fixed, Params(), {}).sampling == Sampling(temperature=0.7)


@pytest.mark.parametrize(("wish", "held"), [(0.1, 0.5), (0.6, 0.6), (1.5, 1.0), (None, 0.8)])
def test_a_number_is_moved_into_its_bounds(wish: float | None, held: float) -> None:
    default = Params(sampling=Sampling(temperature=0.8))
    clamped = stage(temperature=Clamp(least=0.5, most=1.0), params=default)
    wishes = Params(sampling=Sampling(temperature=wish))
    assert effective_params(clamped, wishes, {}).sampling.temperature == held


def test_one_bound_is_enough() -> None:
    default = Params(sampling=Sampling(tokens_max=100))
    least, most = (
        stage(tokens_max=Clamp(least=10), params=default),
        stage(tokens_max=Clamp(most=200), params=default),
    )
    few, many = Params(sampling=Sampling(tokens_max=1)), Params(sampling=Sampling(tokens_max=999))
    assert effective_params(least, few, {}).sampling.tokens_max == 10
    assert effective_params(least, many, {}).sampling.tokens_max == 999
    assert effective_params(most, few, {}).sampling.tokens_max == 1
    assert effective_params(most, many, {}).sampling.tokens_max == 200


def test_no_more_tokens_are_asked_for_than_a_constraint_leaves() -> None:
    """E1: a least length above what may be would never be reached, and the stage would stall."""
    wishes = Params(sampling=Sampling(tokens_min=50, tokens_max=80))
    told = effective_params(stage(tokens_max=Fixed(1)), wishes, {}).sampling
    assert (told.tokens_min, told.tokens_max) == (1, 1)


def test_constraints_of_other_fields_leave_a_contradiction_to_the_door() -> None:
    wishes = Params(sampling=Sampling(tokens_min=50, tokens_max=8))
    assert effective_params(stage(), wishes, {}).sampling.tokens_min == 50


def test_fields_that_are_set_are_named() -> None:
    assert list(wished_fields(Params())) == []
    image = ImageParams(width=16)
    params = Params(sampling=Sampling(temperature=0.0, stop=("a",)), image=image)
    assert list(wished_fields(params)) == ["sampling.temperature", "sampling.stop", "image.width"]
