"""Logs as JSON lines."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from stagemesh.telemetry import configure_logs, current_request_id, request_logs


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    root.handlers.clear()  # What pytest put there comes back below, unclosed.
    configure_logs("gateway", "g0")
    yield out
    root.handlers[:], root.level = before


def test_a_line_is_one_json_object_that_says_who_and_when(lines: io.StringIO) -> None:
    logging.getLogger("a.b").warning("drained %d", 3, extra={"stage": "talker"})
    line = json.loads(lines.getvalue())
    when = datetime.fromisoformat(line.pop("time"))
    assert when.utcoffset() is not None
    assert line == {
        "level": "WARNING",
        "logger": "a.b",
        "message": "drained 3",
        "service": "gateway",
        "id": "g0",
        "stage": "talker",
    }


def test_a_line_names_the_request_it_is_about(lines: io.StringIO) -> None:
    log = logging.getLogger("x")
    with request_logs("req_1"):
        log.info("inside")
        log.info("other", extra={"request_id": "req_2"})
    log.info("outside")
    ids = [json.loads(line).get("request_id") for line in lines.getvalue().splitlines()]
    assert ids == ["req_1", "req_2", None]


def test_the_request_id_ends_with_its_block() -> None:
    with request_logs("req_1"):
        assert current_request_id() == "req_1"
    assert current_request_id() == ""


def test_an_exception_stays_on_its_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert "ValueError: no" in json.loads(lines.getvalue())["exc_info"]
