import pytest

from stagemesh.link.core import Liveness


@pytest.fixture
def liveness() -> Liveness:
    return Liveness(heartbeat_s=2.0, peer_lost_s=6.0, now_s=100.0)


def test_a_heartbeat_is_due_when_nothing_was_sent(liveness: Liveness) -> None:
    assert not liveness.heartbeat_due(101.9)
    assert liveness.heartbeat_due(102.0)
    liveness.sent(102.0)
    assert not liveness.heartbeat_due(103.9)


def test_a_silent_peer_is_lost(liveness: Liveness) -> None:
    liveness.heard(101.0)
    assert not liveness.lost(106.9)
    assert liveness.lost(107.0)


def test_a_process_that_looks_often_did_not_stand_still(liveness: Liveness) -> None:
    assert not any(liveness.stood_still(100.0 + 2.0 * turn) for turn in range(10))
    assert liveness.lost(106.0)


def test_a_process_that_did_not_look_for_peer_lost_s_stood_still(liveness: Liveness) -> None:
    assert not liveness.stood_still(106.0)
    assert liveness.stood_still(112.1)


def test_silence_is_forgiven_for_as_long_as_nobody_listened(liveness: Liveness) -> None:
    liveness.stood_still(102.0)
    assert not liveness.stood_still(107.0)  # Three seconds longer than a look takes.
    assert not liveness.lost(107.0)
    assert not liveness.lost(108.9)
    assert liveness.lost(109.0)


def test_the_next_check_is_the_next_heartbeat_or_the_loss(liveness: Liveness) -> None:
    assert liveness.next_check_s(100.5) == 102.0
    liveness.sent(104.5)
    assert liveness.next_check_s(104.5) == 106.0
    liveness.heard(104.5)
    assert liveness.next_check_s(104.5) == 106.5


def test_an_overdue_heartbeat_is_looked_at_once_in_a_while(liveness: Liveness) -> None:
    liveness.heard(103.0)
    assert liveness.next_check_s(103.0) == 105.0


def test_the_next_check_is_never_in_the_past(liveness: Liveness) -> None:
    assert liveness.next_check_s(120.0) == 120.0
