"""The row of a request, as its next owner gets it."""

from services.gateway.core.detached import LanePosition, OwnerName
from services.gateway.store import RequestRow, taken_by

A, B = OwnerName("o", 1), OwnerName("p", 1)
ROW = RequestRow(
    request_id="r", tenant="t", epoch=1, owner=A, owner_since=1, revision="r1",
    deadline_at_s=9.0, detach_s=5.0, lanes=(LanePosition(1, 7),),
)  # fmt: skip


def _since(*owners: OwnerName) -> list[int]:
    row, since = ROW, []
    for owner in owners:
        row = taken_by(row, owner, "r1")
        since.append(row.owner_since)
    return since


def test_an_owner_has_a_request_since_the_first_of_its_epochs_in_a_row() -> None:
    assert _since(A, A) == [1, 1]
    assert _since(B, B, A, A) == [2, 2, 4, 4]


def test_another_life_of_an_orchestrator_is_another_owner() -> None:
    assert _since(OwnerName("o", 2), A) == [2, 3]


def test_the_next_epoch_changes_nothing_that_was_committed() -> None:
    row = taken_by(ROW, B, "r2")
    assert (row.epoch, row.owner, row.revision) == (2, B, "r2")
    assert (row.lanes, row.terminal, row.deadline_at_s) == (ROW.lanes, None, 9.0)
