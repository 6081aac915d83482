import pytest

from services.stage_worker.engines.support.resuming import refuse_uncounted, seed_after
from stagemesh.errors import MeshError
from stagemesh.media import Sampling
from stagemesh.outcome import ErrorCode


def test_what_would_not_be_counted_is_a_loss_that_is_worth_a_retry() -> None:
    with pytest.raises(MeshError) as caught:
        refuse_uncounted(Sampling(presence_penalty=0.5), "frequency_penalty", "presence_penalty")
    assert caught.value.info.code is ErrorCode.REPLICA_LOST
    assert caught.value.info.retryable
    assert "presence_penalty" in caught.value.info.message


def test_what_is_not_set_is_no_reason_to_refuse() -> None:
    refuse_uncounted(Sampling(presence_penalty=0.0, top_p=0.5), "presence_penalty", "min_p")


def test_the_rest_of_an_answer_has_a_seed_of_its_own() -> None:
    assert seed_after(7, 0) == 7
    seeds = {seed_after(seed, tokens) for seed in range(16) for tokens in range(200)}
    assert len(seeds) == 16 * 200
    assert all(0 <= seed < 2**64 for seed in seeds | {seed_after(2**64 - 1, 10**9)})
