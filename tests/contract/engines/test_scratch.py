"""A killed process cannot tidy up its scratch folder, so the next one does."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from services.stage_worker.engines.support.scratch import Scratch


def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = textwrap.dedent(
        f"""
        import os, signal, tempfile
        tempfile.tempdir = {str(tmp_path)!r}
        from services.stage_worker.engines.support.scratch import Scratch
        scratch = Scratch("name")
        (scratch.path / "left").touch()
        print(scratch.path, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    left = Path(ran.stdout.strip())
    assert (left / "left").exists()
    scratch = Scratch("name")
    assert not left.exists()
    scratch.close()
