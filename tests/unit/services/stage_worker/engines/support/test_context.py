import pytest

from services.stage_worker.engines.support.context import answer_tokens_max
from stagemesh.errors import MeshError
from stagemesh.media import Sampling


@pytest.mark.parametrize(
    ("asked", "prompt", "given"), [(10, 90, 10), (11, 90, 10), (None, 90, 10), (500, 1, 99)]
)
def test_an_answer_fits_into_the_context(asked: int | None, prompt: int, given: int) -> None:
    sampling = Sampling(tokens_max=asked)
    assert answer_tokens_max(sampling, prompt_tokens=prompt, context_tokens_max=100) == given


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(MeshError, match="empty"):
        answer_tokens_max(Sampling(), prompt_tokens=0, context_tokens_max=100)


@pytest.mark.parametrize("prompt", [100, 101])
def test_a_prompt_that_leaves_no_room_is_refused(prompt: int) -> None:
    with pytest.raises(MeshError) as caught:
        answer_tokens_max(Sampling(), prompt_tokens=prompt, context_tokens_max=100)
    assert caught.value.info.reason == "context_length_exceeded"
    assert caught.value.info.param == "messages"
    assert str(prompt) in caught.value.info.message
