"""Who writes dumps, and where they go."""

import asyncio
import logging
from pathlib import Path

import pytest

from services.orchestrator.core import events as ev
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.driver import Dumper, Recorder, read_dump
from tests.helpers.core_mesh import core_mesh


def dumper(directory: str, recorder: Recorder | None = None) -> Dumper:
    return Dumper(
        recorder or Recorder([]),
        Orchestrator(core_mesh()),
        directory=directory,
        orchestrator_id="o-0",
        incarnation=5,
        settings=CoreSettings(),
        revisions={"echo": "r"},
    )


def test_a_failure_is_written_at_once(tmp_path: Path) -> None:
    recorder = Recorder([])
    recorder.take(ev.Tick(), 1.0)
    dumper(str(tmp_path), recorder).write("KeyError")

    dump = read_dump(tmp_path / "o-0-failed.dump")
    assert (dump.reason, dump.incarnation, dump.revisions) == ("KeyError", 5, {"echo": "r"})
    assert [step.event for step in dump.steps] == [ev.Tick()]
    assert dump.footprint["requests"] == 0


async def test_a_wish_is_written_beside_what_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told = dumper(str(tmp_path))
    told.write_aside()
    told.write_aside()
    async with asyncio.timeout(5):
        await told.written()

    assert read_dump(tmp_path / "o-0-asked.dump").reason == "asked"
    assert [record.message for record in caplog.records] == ["dump_written"]


async def test_a_wish_that_cannot_be_written_is_logged_with_its_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder([])
    recorder.take(object(), 1.0)  # type: ignore[arg-type]  # No event: it has no bytes.
    told = dumper(str(tmp_path), recorder)
    told.write_aside()
    async with asyncio.timeout(5):
        await told.written()
    (record,) = caplog.records
    assert (record.message, record.exc_info is not None) == ("dump_failed", True)


async def test_without_a_directory_nothing_is_written_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = dumper("")
    told.write("KeyError")
    told.write_aside()
    assert [record.message for record in caplog.records] == ["dump_refused"]


def test_a_directory_that_cannot_be_written_hides_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dumper(str(tmp_path / "nowhere")).write("KeyError")
    assert [record.message for record in caplog.records] == ["dump_failed"]
