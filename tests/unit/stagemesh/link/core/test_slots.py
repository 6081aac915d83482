import pytest

from stagemesh.link.core import SlotMint


def test_slots_count_from_one() -> None:
    mint = SlotMint()
    assert [mint.next() for _ in range(3)] == [1, 2, 3]


def test_the_last_slot_is_not_followed_by_a_used_one() -> None:
    mint = SlotMint()
    mint._last = 0xFFFF_FFFE
    assert mint.next() == 0xFFFF_FFFF
    with pytest.raises(OverflowError, match="no slot left"):
        mint.next()
