import re
from collections.abc import Callable

import pytest

from stagemesh.ids import new_handle_id, new_incarnation, new_request_id


@pytest.mark.parametrize(
    ("mint", "form"),
    [(new_request_id, r"req_[0-9a-f]{32}"), (new_handle_id, r"h_[0-9a-f]{32}")],
)
def test_an_id_says_what_it_names_and_cannot_be_guessed(mint: Callable[[], str], form: str) -> None:
    minted = [mint() for _ in range(1000)]
    assert all(re.fullmatch(form, one) for one in minted)
    assert len(set(minted)) == 1000


def test_an_incarnation_is_never_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: 0 if bits == 64 else 7)
    assert new_incarnation() == 1


def test_incarnations_fit_the_wire_and_differ() -> None:
    drawn = {new_incarnation() for _ in range(1000)}
    assert len(drawn) == 1000
    assert all(0 < one < 1 << 64 for one in drawn)
