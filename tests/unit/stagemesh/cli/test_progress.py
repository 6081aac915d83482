from io import StringIO

from rich.console import Console

from stagemesh.cli.progress import LiveProgress, PlainProgress, Row, make_progress


def test_plain_progress_prints_only_what_changed() -> None:
    out = StringIO()
    progress = PlainProgress(Console(file=out, width=40))
    progress.show([Row("a-0", "starting", ""), Row("b-0", "starting", "weights [1/2]")])
    progress.show([Row("a-0", "ready", ""), Row("b-0", "starting", "weights [1/2]")])
    progress.say("a line that is much longer than the console is wide, and is not broken")
    progress.done()
    assert out.getvalue().splitlines() == [
        "a-0: starting",
        "b-0: starting: weights [1/2]",
        "a-0: ready",
        "a line that is much longer than the console is wide, and is not broken",
    ]


def test_live_progress_draws_every_process_and_leaves_the_terminal_clean() -> None:
    out = StringIO()
    progress = LiveProgress(Console(file=out, force_terminal=True, width=60))
    progress.show([Row("a-0", "starting", "weights [1/2]")])
    drawn = out.getvalue()
    progress.done()
    assert "a-0" in drawn
    assert "weights [1/2]" in drawn
    assert "\x1b[?25l" in drawn
    assert "\x1b[?25h" in out.getvalue().removeprefix(drawn)


def test_a_terminal_gets_a_table_and_a_file_gets_lines() -> None:
    assert isinstance(make_progress(Console(file=StringIO())), PlainProgress)
    live = make_progress(Console(file=StringIO(), force_terminal=True))
    live.done()
    assert isinstance(live, LiveProgress)
