import pytest

from stagemesh.link.core import MESSAGE_ROWS_MAX
from stagemesh.link.pump import Backoff, LinkPolicy


def test_the_defaults_are_those_of_the_design() -> None:
    policy = LinkPolicy()
    assert (policy.heartbeat_s, policy.peer_lost_s) == (2.0, 6.0)
    assert policy.message_bytes_max == 256 * 1024
    assert MESSAGE_ROWS_MAX >= 1024


@pytest.mark.parametrize(
    "wrong",
    [{"heartbeat_s": 0.0}, {"heartbeat_s": 4.0}, {"message_rows_max": 0}, {"outbox_bytes_max": 0}],
)
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        LinkPolicy(**wrong)  # type: ignore[arg-type]


def test_the_wait_doubles_up_to_a_bound_and_is_jittered_downwards() -> None:
    backoff = Backoff(first_s=0.05, longest_s=1.0)
    assert [backoff.delay_s(failures, 1.0) for failures in (0, 1, 2, 5, 1000)] == pytest.approx(
        [0.05, 0.1, 0.2, 1.0, 1.0]
    )
    assert backoff.delay_s(0, 0.0) == pytest.approx(0.025)
