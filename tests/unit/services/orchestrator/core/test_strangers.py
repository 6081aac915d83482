"""Slots that mean nothing here."""

from services.orchestrator.core.strangers import COUNT_MAX, Strangers


def test_a_stranger_is_told_of_once_and_only_the_last_are_remembered() -> None:
    strangers = Strangers()
    assert strangers.is_new(1)
    assert not strangers.is_new(1)
    for slot in range(2, COUNT_MAX + 2):
        assert strangers.is_new(slot)
    assert len(strangers) == COUNT_MAX
    assert strangers.is_new(1)
