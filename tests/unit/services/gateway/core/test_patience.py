from services.gateway.core.patience import Patience


def test_who_takes_something_now_and_then_may_take_as_long_as_it_likes() -> None:
    patience = Patience(10.0, taken=0, now_s=0.0)
    for turn in range(1, 20):
        assert not patience.is_over(taken=turn, waiting=1_000, now_s=9.0 * turn)


def test_who_takes_nothing_for_so_long_is_given_up() -> None:
    patience = Patience(10.0, taken=5, now_s=0.0)
    assert not patience.is_over(taken=5, waiting=1, now_s=9.9)
    assert patience.is_over(taken=5, waiting=1, now_s=10.0)


def test_who_has_nothing_to_take_is_not_slow() -> None:
    patience = Patience(10.0, taken=0, now_s=0.0)
    assert not patience.is_over(taken=0, waiting=0, now_s=50.0)
    assert not patience.is_over(taken=0, waiting=7, now_s=59.0)
    assert patience.is_over(taken=0, waiting=7, now_s=60.0)
