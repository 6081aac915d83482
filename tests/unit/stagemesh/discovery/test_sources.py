"""Sources by name."""

from pathlib import Path

import pytest

from stagemesh.discovery import FileSource, StaticSource, open_source
from stagemesh.errors import BadSettings


def test_a_source_is_opened_by_its_kind(tmp_path: Path) -> None:
    assert isinstance(open_source("static:a=x@h:1"), StaticSource)
    assert isinstance(open_source(f"file:{tmp_path}/not-there-yet.json"), FileSource)


@pytest.mark.parametrize("spec", ["", "file:", "static:", "dns:x", "file:/no/such/folder/x.json"])
def test_what_cannot_be_opened_is_refused(spec: str) -> None:
    with pytest.raises(BadSettings, match="discovery"):
        open_source(spec)
