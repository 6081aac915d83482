"""The form of a dump."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.core import events as ev
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.driver import BadDump, Dump, Step, read_dump, write_dump
from services.orchestrator.driver.dumps import VERSION, Ended, Submitted
from stagemesh.link.core import Row

DUMP = Dump(
    orchestrator_id="o-0",
    incarnation=(1 << 64) - 1,
    reason="KeyError",
    settings=CoreSettings(slow_s=2.5),
    revisions={"echo": "r"},
    skipped=3,
    standing=(Step(now_s=0.0, event=ev.ReplicaListed(replica_id="t-0", listed=False)),),
    steps=(
        Step(
            now_s=1.5,
            event=ev.RowsArrived(link=2, rows=[Row(1, 2, 3, 4, "xx", [0, 0], origin=(1, 2))]),
            effects=("SendRows",),
            submitted=(Submitted(2, 1, "r1", 1, 1, 0, 0),),
            ended=(Ended("r1", 2),),
        ),
        Step(now_s=float("inf"), event=ev.Tick()),
    ),
    footprint={"requests": 1},
)


def test_a_dump_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_dump(DUMP, tmp_path / "a.dump")
    assert read_dump(tmp_path / "a.dump") == DUMP
    assert [path.name for path in tmp_path.iterdir()] == ["a.dump"]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    write_dump(DUMP, tmp_path / "a.dump")
    assert (tmp_path / "a.dump").stat().st_mode & 0o077 == 0


def test_another_version_is_refused_by_name(tmp_path: Path) -> None:
    later = msgspec.structs.replace(DUMP, version=VERSION + 1)
    write_dump(later, tmp_path / "a.dump")
    with pytest.raises(BadDump, match=f"version {VERSION + 1}"):
        read_dump(tmp_path / "a.dump")


@given(data=st.binary(max_size=64))
def test_what_is_no_dump_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("dump") / "a.dump"
    path.write_bytes(data)
    with pytest.raises(BadDump):
        read_dump(path)


def test_half_a_dump_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.dump"
    write_dump(DUMP, path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(BadDump):
        read_dump(path)
