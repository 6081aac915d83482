from services.stage_worker.core.progress import Progress


def test_steps_that_grow_are_progress() -> None:
    progress = Progress(10.0)
    progress.watch(0.0)
    assert not progress.look(1, busy=True, now_s=9.0)
    assert not progress.look(2, busy=True, now_s=18.0)
    assert not progress.look(2, busy=True, now_s=27.0)
    assert progress.look(2, busy=True, now_s=28.0)


def test_outputs_are_progress_too() -> None:
    progress = Progress(10.0)
    progress.watch(0.0)
    progress.moved(9.0)
    assert not progress.look(0, busy=True, now_s=18.0)


def test_nothing_is_watched_while_there_is_no_work() -> None:
    progress = Progress(10.0)
    checks = [progress.next_check_s]
    progress.watch(0.0)
    checks.append(progress.next_check_s)
    assert not progress.look(0, busy=False, now_s=100.0)
    checks.append(progress.next_check_s)
    assert checks == [None, 2.5, None]
    progress.watch(200.0)
    assert not progress.look(0, busy=True, now_s=209.0)
