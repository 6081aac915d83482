from services.stage_worker.core.orphans import Orphans


def test_each_orphan_is_due_once_after_its_time() -> None:
    orphans = Orphans(orphan_s=2.0)
    orphans.add(1, 10.0)
    orphans.add(2, 11.0)
    assert orphans.next_s == 12.0
    assert orphans.due(11.9) == []
    assert orphans.due(12.0) == [1]
    assert orphans.next_s == 13.0
    assert orphans.due(20.0) == [2]
    assert orphans.next_s is None
