import json
from pathlib import Path

import pytest

from stagemesh.cli.logs import LogFile, loading_detail


def loading(detail: str) -> str:
    return json.dumps({"event": "loading", "detail": detail}) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    log = LogFile(tmp_path / "w.log")
    log.begin()
    return log


def append(log: LogFile, text: str) -> None:
    with log.path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b'{"event": "loading", "detail": "weights"}', "weights"),
        (b'{"event": "loading"}', ""),
        (b'{"event": "loaded", "detail": "loading"}', None),
        (b'["loading"]', None),
        (b'"loading" {', None),
        (b"loading", None),
    ],
)
def test_progress_is_a_line_that_says_it_is(line: bytes, detail: str | None) -> None:
    assert loading_detail(line) == detail


def test_the_latest_progress_is_told_once(log: LogFile) -> None:
    append(log, loading("one") + "other words\n" + loading("two") + "more words\n")
    assert log.progress() == "two"
    assert log.progress() is None


def test_half_a_line_waits_for_its_other_half(log: LogFile) -> None:
    text = loading("whole")
    append(log, text[:10])
    assert log.progress() is None
    append(log, text[10:])
    assert log.progress() == "whole"


def test_an_endless_line_does_not_hold_up_what_follows(log: LogFile) -> None:
    append(log, "x" * (1 << 20))
    assert log.progress() is None
    append(log, "\n" + loading("after"))
    assert log.progress() == "after"


def test_a_new_life_does_not_quote_the_one_before(log: LogFile) -> None:
    append(log, loading("old") + "old words\n")
    log.begin()
    append(log, "new words\n")
    assert log.progress() is None
    assert log.last_lines() == ["new words"]


def test_the_last_lines_are_a_dozen_at_most(log: LogFile) -> None:
    append(log, "".join(f"line {n}\n\n" for n in range(2000)))
    assert log.last_lines() == [f"line {n}" for n in range(1988, 2000)]


def test_a_large_log_is_set_aside(log: LogFile) -> None:
    with log.path.open("r+b") as file:
        file.truncate((16 << 20) + 1)
    log.begin()
    assert log.path.stat().st_size == 0
    assert log.path.with_suffix(".log.1").stat().st_size == (16 << 20) + 1
